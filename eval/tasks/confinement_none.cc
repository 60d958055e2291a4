#include "eval/tasks/confinement.h"

namespace kakeya::eval {

Confinement confine_process(const char* /*folder*/) {
  return {};
}

}  // namespace kakeya::eval
