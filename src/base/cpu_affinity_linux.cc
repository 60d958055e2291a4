#include <sched.h>
#include <unistd.h>

#include "base/cpu_affinity.h"

namespace kakeya {

ThreadNumber this_thread() {
  thread_local const pid_t kNumber = ::gettid();
  return kNumber;
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  }
  return cpus;
}

int current_cpu() {
  return ::sched_getcpu();
}

void pin_to(ThreadNumber thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  ::sched_setaffinity(thread, sizeof(set), &set);
}

bool move_to(ThreadNumber thread, int cpu) {
  cpu_set_t may_use;
  if (::sched_getaffinity(thread, sizeof(may_use), &may_use) != 0) return false;
  if (!CPU_ISSET(cpu, &may_use)) return false;
  pin_to(thread, cpu);
  ::sched_setaffinity(thread, sizeof(may_use), &may_use);  // moves it no further
  return true;
}

}  // namespace kakeya
