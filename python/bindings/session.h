// One timeline of tokens, as Python sees it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/forms.h"
#include "bindings/generation.h"
#include "bindings/options.h"
#include "bindings/passes.h"
#include "kakeya/engine.h"

namespace kakeya::python {

// A session with its engine. Passes run without the GIL; while one does, other threads' calls are
// refused with kFailedPrecondition, those that only read too. All members throw Raised.
class PythonSession {
 public:
  PythonSession(std::shared_ptr<Forms> forms, std::unique_ptr<Session> session)
      : forms_(std::move(forms)), session_(std::move(session)) {}
  PythonSession(const PythonSession&) = delete;
  PythonSession& operator=(const PythonSession&) = delete;
  ~PythonSession() {
    destroy_unlocked(
        [session = std::shared_ptr(std::move(session_))]() mutable { session.reset(); });
  }

  // `on_text`: None, or called with each piece of text, which may be empty, and between chunks of
  // the prompt; False ends the generation.
  Generation generate(const GenerationWish& wish, const nb::object& on_text);

  // Calls `use` with the session, without the GIL.
  template <typename Use>
  auto unlocked(const Use& use) {
    refuse_within_constraint();
    const Turn turn(busy_);
    const nb::gil_scoped_release unlocked;
    return use(*session_);
  }
  std::unique_ptr<PythonSession> fork();
  // The numbers of one row.
  std::int64_t width(RowKind kind) const;

 private:
  // Marks the session as used by one thread.
  class Turn {
   public:
    explicit Turn(std::atomic<bool>& busy);
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { busy_ = false; }

   private:
    std::atomic<bool>& busy_;
  };

  std::shared_ptr<Forms> forms_;
  std::unique_ptr<Session> session_;
  std::atomic<bool> busy_{false};
};

nb::dict footprint_dict(const Footprint& footprint);

void bind_session(nb::module_& module);

}  // namespace kakeya::python
