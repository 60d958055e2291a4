// A seccomp filter allows the system calls that are needed; Landlock keeps writing to a folder.
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>

#include "confinement.h"
#include "confinement_layers.h"

namespace kakeya::eval {
namespace {

// What headers before Linux 6.2, 6.10 and 6.12 lack, by the version of Landlock that has it.
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
  rules.files = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
  if (version >= 3) rules.files |= kTruncateFrom3;
  if (version >= 5) rules.files |= kDeviceIoctlFrom5;
  if (version >= 6) rules.scopes = kScopeSignalFrom6;
  return rules;
}

}  // namespace

bool write_only_in(const char* folder) {
  const long version =
      ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) return false;
  const LandlockRules rules = landlock_rules(version);
  // A system that knows fewer members takes the whole of it, if those that it lacks are 0.
  const int set =
      static_cast<int>(::syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0));
  const int at = ::open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
  const landlock_path_beneath_attr beneath = {.allowed_access = rules.files, .parent_fd = at};
  const bool confined =
      set >= 0 && at >= 0 &&
      ::syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) == 0 &&
      ::syscall(SYS_landlock_restrict_self, set, 0) == 0;
  if (set >= 0) ::close(set);
  if (at >= 0) ::close(at);
  return confined;
}

Confinement confine_process(const char* folder) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it does not outlive its parent
  // Of root, the rights that exec would give back; refused to others, who have none.
  ::prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return {};
  const bool landlock = write_only_in(folder);
  const bool filter = allow_needed_calls();
  // Modes, owners and, before Landlock's version 3, truncation are the filter's.
  return {.network = filter, .files = landlock && filter};
}

}  // namespace kakeya::eval
