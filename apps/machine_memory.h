// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <string>

namespace kakeya::cli {

// The value of the first line of a /proc file that starts with `key`; "unknown" if there is none.
std::string proc_value(const char* path, const std::string& key);
// The same of /proc/meminfo in bytes; 0 if it is not there.
std::uint64_t meminfo_bytes(const std::string& key);

// What the process has in memory, in bytes; 0 if the system does not say.
std::uint64_t resident_memory();

// What the system has left, within the limits of the process (address space) and of its control
// group. The most that can be taken without being refused by the system, or killed.
std::uint64_t available_memory();

}  // namespace kakeya::cli
