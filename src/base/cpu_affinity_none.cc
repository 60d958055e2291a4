#include "base/cpu_affinity.h"

namespace kakeya {

ThreadNumber this_thread() {
  return 0;
}

std::vector<int> allowed_cpus() {
  return {};
}

int current_cpu() {
  return -1;
}

void pin_to(ThreadNumber /*thread*/, int /*cpu*/) {}

bool move_to(ThreadNumber /*thread*/, int /*cpu*/) {
  return false;
}

}  // namespace kakeya
