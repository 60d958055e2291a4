// The limits of nested control groups, from file trees as the kernel shows them (cgroups(7),
// proc_pid_mountinfo(5)).
#include "base/control_group.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "formats/scratch_files.h"

namespace kakeya {
namespace {

class Tree : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::string whole = folder_.path("root") + path;
    std::filesystem::create_directories(std::filesystem::path(whole).parent_path());
    std::ofstream(whole) << text;
  }
  ControlGroupLimits limits() const { return control_group_limits(folder_.path("root")); }

  const std::string kSecond = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

 private:
  ScratchFolder folder_;
};

TEST_F(Tree, WithoutGroupsThereIsNoLimit) {
  EXPECT_EQ(limits().memory, ControlGroupLimits::kNone);
  EXPECT_EQ(limits().memory_left, ControlGroupLimits::kNone);
  EXPECT_GT(limits().cpus, 1e9);
}

// systemd's MemoryMax=: the limit is of a group between the root and the process.
TEST_F(Tree, TheLeastLimitOnTheWayUpCounts) {
  write("/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + kSecond);
  write("/proc/self/cgroup", "0::/user.slice/run.scope/inner\n");
  write("/sys/fs/cgroup/user.slice/memory.max", "8000\n");
  write("/sys/fs/cgroup/user.slice/memory.current", "7500\n");
  write("/sys/fs/cgroup/user.slice/memory.stat", "anon 7000\ninactive_file 300\nfile 400\n");
  write("/sys/fs/cgroup/user.slice/run.scope/memory.max", "5000\n");
  write("/sys/fs/cgroup/user.slice/run.scope/memory.high", "max\n");
  write("/sys/fs/cgroup/user.slice/run.scope/memory.current", "1000\n");
  write("/sys/fs/cgroup/user.slice/run.scope/inner/memory.max", "max\n");
  write("/sys/fs/cgroup/user.slice/run.scope/inner/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n");
  EXPECT_EQ(limits().memory, 5000U);
  EXPECT_EQ(limits().memory_left, 800U);  // 8000 less 7500, of which 300 can be given up
  EXPECT_DOUBLE_EQ(limits().cpus, 1.5);
  write("/sys/fs/cgroup/user.slice/run.scope/memory.high", "1200\n");
  EXPECT_EQ(limits().memory_left, 200U);
}

// A container whose namespace hides what is above: its own group is mounted as the root.
TEST_F(Tree, AMountedGroupIsTheTop) {
  write("/proc/self/mountinfo", "30 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n");
  write("/proc/self/cgroup", "0::/docker/abc\n");
  write("/sys/fs/cgroup/memory.max", "4096\n");
  EXPECT_EQ(limits().memory_left, 4096U);
  // Moved out of its namespace: what is mounted is all that can be seen.
  write("/proc/self/cgroup", "0::/../other\n");
  EXPECT_EQ(limits().memory_left, 4096U);
}

TEST_F(Tree, TheFirstVersionHasAHierarchyForEachController) {
  write("/proc/self/mountinfo",
        "31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "32 25 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  write("/proc/self/cgroup", "5:memory:/slurm/job\n3:cpu,cpuacct:/slurm\n1:name=systemd:/x\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", "3000\n");
  write("/sys/fs/cgroup/memory/slurm/memory.usage_in_bytes", "1200\n");
  write("/sys/fs/cgroup/memory/slurm/memory.stat", "total_inactive_file 200\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_quota_us", "50000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limits().memory, 3000U);
  EXPECT_EQ(limits().memory_left, 2000U);
  EXPECT_DOUBLE_EQ(limits().cpus, 0.5);
}

}  // namespace
}  // namespace kakeya
