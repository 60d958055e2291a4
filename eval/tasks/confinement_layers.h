// The layers of a confinement on Linux. Each holds without the other, and tests try them so.
#pragma once

namespace kakeya::eval {

// Lets the calling process, and whatever it becomes by exec, make no system calls but those that an
// interpreter needs to compute, to read files and to write its own. Needs PR_SET_NO_NEW_PRIVS.
// Allocates nothing, takes no lock. False: the system or this machine's architecture has no filter.
bool allow_needed_calls();

// Keeps the same processes from writing anywhere but in `folder`, and from reading what lies under
// /dev except for zeros and random bytes, by Landlock; where the system knows how (Linux 6.10,
// 6.12), also from devices' ioctl and from signals to other processes.
// Landlock before its version 3 (Linux 6.2) does not see that open() truncates a file which it
// opens to read; allow_needed_calls() refuses that. Same rules. False: there is no Landlock.
bool confine_files(const char* folder);

}  // namespace kakeya::eval
