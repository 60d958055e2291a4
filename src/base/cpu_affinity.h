// Which CPUs threads run on. A system without such calls (macOS) says nothing and moves nobody.
#pragma once

#include <vector>

namespace kakeya {

// The system's number of a thread.
using ThreadNumber = int;
ThreadNumber this_thread();

// The CPUs that this thread may run on; empty if the system does not say.
std::vector<int> allowed_cpus();
// The CPU that this thread runs on, which may be another one by now; -1 if the system does not say.
int current_cpu();

// Lets a thread run on one CPU only. Failure (a cpuset that changed) costs speed only.
void pin_to(ThreadNumber thread, int cpu);
// Moves a thread to a CPU, and lets it run where it might before. False if it may not run there.
bool move_to(ThreadNumber thread, int cpu);

}  // namespace kakeya
