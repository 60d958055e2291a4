#include "machine_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "base/control_group.h"

namespace kakeya::cli {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// The number in a file; `fallback` if there is none ("max", or no such file).
std::uint64_t number_in(const std::string& path, std::uint64_t fallback) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? value : fallback;
}

std::uint64_t left(std::uint64_t limit, std::uint64_t used) {
  return limit == kNoLimit ? kNoLimit : limit - std::min(limit, used);
}

std::uint64_t left_in_address_space() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  const std::uint64_t pages = number_in("/proc/self/statm", 0);
  return left(limit.rlim_cur, pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
}

}  // namespace

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

std::uint64_t resident_memory() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  if (!(file >> size >> resident)) return 0;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t meminfo_bytes(const std::string& key) {
  return 1024 * std::strtoull(proc_value("/proc/meminfo", key).c_str(), nullptr, 10);
}

std::uint64_t available_memory() {
  const std::uint64_t machine = meminfo_bytes("MemAvailable");
  return std::min({machine == 0 ? kNoLimit : machine, left_in_address_space(),
                   control_group_limits().memory_left});
}

}  // namespace kakeya::cli
