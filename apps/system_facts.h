// What the system says of itself and of this process. What it does not say is 0, empty or
// "unknown".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kakeya::cli {

std::string cpu_name();

// In bytes.
std::uint64_t machine_memory();
// That could be taken without swapping, in bytes.
std::uint64_t free_machine_memory();
// What the process has in memory, in bytes.
std::uint64_t resident_memory();

// The file of this program.
std::string program_path();
// The program as it was called, and its arguments.
std::vector<std::string> command_words();

}  // namespace kakeya::cli
