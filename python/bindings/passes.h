// What a thread may do while a pass of its asks a constraint of Python: the pass holds the engine's
// workspace then, for which other passes, and the ends of sessions and schedulers, would wait.
#pragma once

#include <functional>

namespace kakeya::python {

// Stands for a call of a constraint's method.
class WithinConstraint {
 public:
  WithinConstraint();
  WithinConstraint(const WithinConstraint&) = delete;
  WithinConstraint& operator=(const WithinConstraint&) = delete;
  ~WithinConstraint();
};

// Throws Raised with kFailedPrecondition within a constraint's method.
void refuse_within_constraint();

// Calls `destroy` without the GIL, which a constraint of the pass that it waits for may want.
// Within a constraint's method, where Python may collect its garbage, that is behind the pass.
void destroy_unlocked(std::function<void()> destroy);

// Destroys what this thread has put off. Behind a pass, without the GIL.
void destroy_postponed();

}  // namespace kakeya::python
