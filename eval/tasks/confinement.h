// Confinement: the rights that a process that runs somebody else's code gives up for good.
#pragma once

namespace kakeya::eval {

struct Confinement {
  // No sockets, no other processes: it makes none and sends signals to none.
  bool network = false;
  // It writes, truncates and removes files in one folder alone, changes nobody's mode or owner, and
  // reads no devices.
  bool files = false;
};

// Confines the calling process, and whatever it becomes by exec, as far as the system can: `folder`
// is where it may write. For a child between fork and exec: allocates nothing, takes no lock.
Confinement confine_process(const char* folder);

}  // namespace kakeya::eval
