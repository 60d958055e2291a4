// How much memory this process may still take.
#pragma once

#include <cstdint>

namespace kakeya::cli {

// The bytes that the system has left, within the limits of the process (address space) and of its
// control group: the most that can be taken without being refused by the system, or killed.
std::uint64_t available_memory();

}  // namespace kakeya::cli
