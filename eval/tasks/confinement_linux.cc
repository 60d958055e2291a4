// A seccomp filter allows the system calls that are needed; Landlock keeps writing to a folder,
// and reading from devices.
#include <dirent.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "eval/tasks/confinement.h"
#include "eval/tasks/confinement_layers.h"

namespace kakeya::eval {
namespace {

// Constants that headers before Linux 6.2, 6.10 and 6.12 lack, by the version of Landlock that has
// them.
constexpr std::uint64_t kTruncateFrom3 = std::uint64_t{1} << 14;
constexpr std::uint64_t kDeviceIoctlFrom5 = std::uint64_t{1} << 15;
constexpr std::uint64_t kScopeSignalFrom6 = std::uint64_t{1} << 1;

struct LandlockRules {
  std::uint64_t files = 0;
  std::uint64_t network = 0;
  std::uint64_t scopes = 0;
};

LandlockRules landlock_rules(long version) {
  LandlockRules rules;
  rules.files =
      LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
      LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |
      LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
      LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
  if (version >= 3) rules.files |= kTruncateFrom3;
  if (version >= 5) rules.files |= kDeviceIoctlFrom5;
  if (version >= 6) rules.scopes = kScopeSignalFrom6;
  return rules;
}

bool allow(int set, int beneath, std::uint64_t access) {
  const landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = beneath};
  return ::syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
}

// Allows reading the file of a name in `folder`. False: there is none, or the name is a link.
bool allow_reading(int set, int folder, const char* name) {
  const int at = ::openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (at < 0) return false;
  const bool allowed = allow(set, at, LANDLOCK_ACCESS_FS_READ_FILE);
  ::close(at);
  return allowed;
}

// All files but those under /dev, where terminals are, of which a reader takes what the user types,
// and disks. A rule allows a folder with all below it, so each folder of the root has one.
bool allow_reading_all_but_devices(int set) {
  const int root = ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) return false;
  alignas(dirent64) std::array<char, 4096> entries{};
  long bytes = 0;
  // Not readdir(), which allocates.
  while ((bytes = ::syscall(SYS_getdents64, root, entries.data(), entries.size())) > 0) {
    for (long at = 0; at < bytes;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries.data() + at);
      at += entry->d_reclen;
      const char* name = entry->d_name;
      if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0) continue;
      if (std::strcmp(name, "dev") != 0) allow_reading(set, root, name);
    }
  }
  for (const char* name : {"dev/null", "dev/zero", "dev/full", "dev/random", "dev/urandom"}) {
    allow_reading(set, root, name);
  }
  ::close(root);
  return bytes == 0;
}

}  // namespace

bool confine_files(const char* folder) {
  const long version =
      ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) return false;
  const LandlockRules rules = landlock_rules(version);
  // A system that knows fewer members takes the whole of it, if those that it lacks are 0.
  const int set =
      static_cast<int>(::syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0));
  const int at = ::open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
  const bool confined = set >= 0 && at >= 0 && allow(set, at, rules.files) &&
                        allow_reading_all_but_devices(set) &&
                        ::syscall(SYS_landlock_restrict_self, set, 0) == 0;
  if (set >= 0) ::close(set);
  if (at >= 0) ::close(at);
  return confined;
}

Confinement confine_process(const char* folder) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it does not outlive its parent
  // Root loses the rights that exec would give back; the call is refused to others, who have none.
  ::prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return {};
  const bool landlock = confine_files(folder);
  const bool filter = allow_needed_calls();
  // Modes, owners and, before Landlock's version 3, truncation are the filter's.
  return {.network = filter, .files = landlock && filter};
}

}  // namespace kakeya::eval
