// The limits of this process's control groups (cgroups(7)): groups nest, and each one above may be
// the one that is full.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace kakeya {

struct ControlGroupLimits {
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

  std::uint64_t memory = kNone;                           // the least limit, in bytes
  std::uint64_t memory_left = kNone;                      // the least that a limit leaves, in bytes
  double cpus = std::numeric_limits<double>::infinity();  // the least quota, in CPUs
};

// The limits of the group of this process and of all above it that can be seen: of version 1 and 2,
// where /proc/self/mountinfo has them mounted. What cannot be read is no limit. `root` stands
// before every path, for tests.
ControlGroupLimits control_group_limits(const std::string& root = "");

}  // namespace kakeya
