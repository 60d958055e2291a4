// Facts that the system gives of itself and of this process. A fact that it does not give is 0,
// empty or "unknown".
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
// The bytes that the process has in memory.
std::uint64_t resident_memory();

// The file of this program.
std::string program_path();
// The program as it was called, and its arguments.
std::vector<std::string> command_words();

}  // namespace kakeya::cli
