#include "base/control_group.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

namespace kakeya {
namespace {

// Where a kind of control group is mounted. Of version 2 there is one, without controllers.
struct Mount {
  bool second_version = false;
  std::string controllers;  // of version 1: "rw,memory"
  std::string root;         // which group of the hierarchy is mounted there
  std::string point;
};

// Names in lists that commas separate.
bool has_name(const std::string& list, std::string_view name) {
  std::istringstream names(list);
  for (std::string one; std::getline(names, one, ',');) {
    if (one == name) return true;
  }
  return false;
}

// Lines of proc_pid_mountinfo(5): numbers and device, root, mount point, options, optional fields,
// a hyphen, type, source, options of the file system.
std::vector<Mount> control_group_mounts(const std::string& root) {
  std::vector<Mount> mounts;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t hyphen = line.find(" - ");
    if (hyphen == std::string::npos) continue;
    std::istringstream front(line.substr(0, hyphen));
    std::istringstream back(line.substr(hyphen + 3));
    Mount mount;
    std::string skipped;
    std::string type;
    front >> skipped >> skipped >> skipped >> mount.root >> mount.point;
    back >> type >> skipped >> mount.controllers;
    mount.second_version = type == "cgroup2";
    if (front && (type == "cgroup" || type == "cgroup2")) mounts.push_back(mount);
  }
  return mounts;
}

// The number that a file begins with; nothing if it says "max" or cannot be read.
std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// Pages of files that the system gives up before it kills anybody.
std::uint64_t reclaimable(const std::string& folder, std::string_view key) {
  std::ifstream file(folder + "/memory.stat");
  std::string name;
  std::uint64_t value = 0;
  while (file >> name >> value) {
    if (name == key) return value;
  }
  return 0;
}

void limit_memory(std::optional<std::uint64_t> limit,
                  std::uint64_t used,
                  ControlGroupLimits& limits) {
  if (!limit) return;
  limits.memory = std::min(limits.memory, *limit);
  limits.memory_left = std::min(limits.memory_left, *limit - std::min(*limit, used));
}

void limit_cpus(double quota, double period, ControlGroupLimits& limits) {
  if (quota > 0.0 && period > 0.0) limits.cpus = std::min(limits.cpus, quota / period);
}

void read_second_version(const std::string& folder, ControlGroupLimits& limits) {
  const std::uint64_t current = number_in(folder + "/memory.current").value_or(0);
  const std::uint64_t used = current - std::min(current, reclaimable(folder, "inactive_file"));
  limit_memory(number_in(folder + "/memory.max"), used, limits);
  limit_memory(number_in(folder + "/memory.high"), used, limits);  // beyond it all is slow
  std::ifstream file(folder + "/cpu.max");
  double quota = 0.0;
  double period = 0.0;
  if (file >> quota >> period) limit_cpus(quota, period, limits);
}

void read_first_version(const std::string& folder, ControlGroupLimits& limits) {
  const std::uint64_t usage = number_in(folder + "/memory.usage_in_bytes").value_or(0);
  const std::uint64_t used = usage - std::min(usage, reclaimable(folder, "total_inactive_file"));
  limit_memory(number_in(folder + "/memory.limit_in_bytes"), used, limits);
  // A quota of -1 is none.
  const auto quota = number_in(folder + "/cpu.cfs_quota_us");
  const auto period = number_in(folder + "/cpu.cfs_period_us");
  if (quota && period && *quota <= (std::uint64_t{1} << 62)) {
    limit_cpus(static_cast<double>(*quota), static_cast<double>(*period), limits);
  }
}

// Reads the group at `path` of a hierarchy and those above it, as far as they are mounted.
void read_upwards(const std::string& root,
                  const Mount& mount,
                  std::string path,
                  ControlGroupLimits& limits) {
  // Beyond what is mounted, as for a process that was moved out of its namespace: only the top.
  const bool within = path.starts_with(mount.root) && path.find("/..") == std::string::npos;
  path = within ? path.substr(mount.root == "/" ? 0 : mount.root.size()) : "";
  if (path == "/") path.clear();
  while (true) {
    const std::string folder = root + mount.point + path;
    mount.second_version ? read_second_version(folder, limits) : read_first_version(folder, limits);
    if (path.empty()) return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

}  // namespace

ControlGroupLimits control_group_limits(const std::string& root) {
  ControlGroupLimits limits;
  const std::vector<Mount> mounts = control_group_mounts(root);
  std::ifstream file(root + "/proc/self/cgroup");
  // "0::/path" of version 2, "5:cpu,cpuacct:/path" of version 1.
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool second_version = controllers.empty();
    const bool memory = has_name(controllers, "memory");
    if (!second_version && !memory && !has_name(controllers, "cpu")) continue;
    for (const Mount& mount : mounts) {
      if (mount.second_version != second_version) continue;
      if (!second_version && !has_name(mount.controllers, memory ? "memory" : "cpu")) continue;
      read_upwards(root, mount, line.substr(second + 1), limits);
    }
  }
  return limits;
}

}  // namespace kakeya
