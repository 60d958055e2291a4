#include "bindings/passes.h"

#include <utility>
#include <vector>

#include "bindings/errors.h"

namespace kakeya::python {
namespace {

thread_local bool within_constraint = false;
thread_local std::vector<std::function<void()>> postponed;

}  // namespace

WithinConstraint::WithinConstraint() {
  within_constraint = true;
}

WithinConstraint::~WithinConstraint() {
  within_constraint = false;
}

void refuse_within_constraint() {
  if (!within_constraint) return;
  throw Raised{Error(StatusCode::kFailedPrecondition,
                     "constraint: its methods are called from within a pass, which runs nothing "
                     "else of an engine")};
}

void destroy_unlocked(std::function<void()> destroy) {
  if (within_constraint) {
    postponed.push_back(std::move(destroy));
    return;
  }
  run_unlocked(destroy);
}

void destroy_postponed() {
  for (const auto& destroy : std::exchange(postponed, {})) destroy();
}

}  // namespace kakeya::python
