#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/system_facts.h"

namespace kakeya::cli {
namespace {

// The value of the first line of a /proc file that starts with `key`; "unknown" if there is none.
std::string proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "unknown";
}

std::uint64_t meminfo_bytes(const char* key) {
  return 1024 * std::strtoull(proc_value("/proc/meminfo", key).c_str(), nullptr, 10);
}

}  // namespace

std::string cpu_name() {
  return proc_value("/proc/cpuinfo", "model name");
}

std::uint64_t machine_memory() {
  return meminfo_bytes("MemTotal");
}

std::uint64_t free_machine_memory() {
  return meminfo_bytes("MemAvailable");
}

std::uint64_t resident_memory() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  if (!(file >> size >> resident)) return 0;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::string program_path() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).string();
}

std::vector<std::string> command_words() {
  std::vector<std::string> words;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace kakeya::cli
