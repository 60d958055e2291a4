#include "cli/machine_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "base/control_group.h"
#include "cli/system_facts.h"

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

std::uint64_t available_memory() {
  const std::uint64_t machine = free_machine_memory();
  return std::min({machine == 0 ? kNoLimit : machine, left_in_address_space(),
                   control_group_limits().memory_left});
}

}  // namespace kakeya::cli
