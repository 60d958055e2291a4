// A seccomp filter refuses system calls; Landlock keeps writing to a folder.
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>

#include "confinement.h"

namespace kakeya::eval {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t kArchitecture = 0;
#endif

// Calls from here on (Linux 6.6, fchmodat2) came after this list; libraries do without them. It is
// below the second set of numbers that x86-64 has for the same calls.
constexpr std::uint32_t kUnknownCalls = 452;

// Refused, whatever their arguments are.
constexpr std::array kRefused = {
#if defined(__x86_64__)
    SYS_fork, SYS_vfork, SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes, SYS_futimesat,
#endif
    // other processes, and what makes system calls in a caller's place
    SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo,
    SYS_pidfd_send_signal, SYS_pidfd_open, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev,
    SYS_setpgid, SYS_setsid, SYS_setpriority, SYS_sched_setaffinity, SYS_bpf, SYS_perf_event_open,
    SYS_userfaultfd, SYS_io_uring_setup,
    // network
    SYS_socket, SYS_socketpair,
    // what Landlock does not ask about
    SYS_truncate, SYS_fchmod, SYS_fchmodat, SYS_fchown, SYS_fchownat, SYS_utimensat, SYS_setxattr,
    SYS_lsetxattr, SYS_fsetxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, SYS_shmget,
    SYS_msgget, SYS_semget};

constexpr sock_filter load(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
}
constexpr sock_filter answer(std::uint32_t what) {
  return BPF_STMT(BPF_RET | BPF_K, what);
}
// Jumps over so many of the next instructions.
constexpr sock_filter jump(std::uint16_t compare, long value, std::uint8_t yes, std::uint8_t no) {
  return BPF_JUMP(static_cast<std::uint16_t>(BPF_JMP | compare | BPF_K),
                  static_cast<std::uint32_t>(value), yes, no);
}

constexpr std::uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
// The first word of an argument; both machines are little-endian.
constexpr std::size_t kArgument = offsetof(seccomp_data, args);

constexpr std::array kBeginning = {
    load(offsetof(seccomp_data, arch)),
    jump(BPF_JEQ, kArchitecture, 1, 0),
    answer(SECCOMP_RET_KILL_PROCESS),
    load(offsetof(seccomp_data, nr)),
    jump(BPF_JGE, kUnknownCalls, 0, 1),
    answer(SECCOMP_RET_ERRNO | ENOSYS),
    // Libraries make threads with clone() where there is no clone3(), whose flags no filter sees.
    jump(BPF_JEQ, SYS_clone3, 0, 1),
    answer(SECCOMP_RET_ERRNO | ENOSYS),
    jump(BPF_JEQ, SYS_clone, 0, 4),
    load(kArgument),
    jump(BPF_JSET, CLONE_THREAD, 1, 0),
    answer(kRefuse),
    answer(SECCOMP_RET_ALLOW),
    // Limits of its own process alone.
    jump(BPF_JEQ, SYS_prlimit64, 0, 4),
    load(kArgument),
    jump(BPF_JEQ, 0, 1, 0),
    answer(kRefuse),
    answer(SECCOMP_RET_ALLOW),
};

constexpr auto kFilter = [] {
  std::array<sock_filter, kBeginning.size() + 2 * kRefused.size() + 1> filter{};
  std::size_t at = 0;
  for (const sock_filter& each : kBeginning) filter[at++] = each;
  for (const long number : kRefused) {
    filter[at++] = jump(BPF_JEQ, number, 0, 1);
    filter[at++] = answer(kRefuse);
  }
  filter[at] = answer(SECCOMP_RET_ALLOW);
  return filter;
}();

bool refuse_calls() {
  if (kArchitecture == 0) return false;
  const sock_fprog program = {.len = kFilter.size(),
                              // The system only reads it.
                              .filter = const_cast<sock_filter*>(kFilter.data())};
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool write_only_in(const char* folder) {
  const long version =
      ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) return false;
  constexpr std::uint64_t kTruncate = std::uint64_t{1} << 14;  // not in headers before Linux 6.2
  std::uint64_t writing = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                          LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                          LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                          LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                          LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
  if (version >= 3) writing |= kTruncate;
  const landlock_ruleset_attr rules = {.handled_access_fs = writing};
  const int set =
      static_cast<int>(::syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0));
  const int at = ::open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
  const landlock_path_beneath_attr beneath = {.allowed_access = writing, .parent_fd = at};
  const bool confined =
      set >= 0 && at >= 0 &&
      ::syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) == 0 &&
      ::syscall(SYS_landlock_restrict_self, set, 0) == 0;
  if (set >= 0) ::close(set);
  if (at >= 0) ::close(at);
  return confined;
}

}  // namespace

Confinement confine_process(const char* folder) {
  Confinement confinement;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it does not outlive its parent
  // Of root, the rights that exec would give back; refused to others, who have none.
  ::prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return confinement;
  confinement.files = write_only_in(folder);
  confinement.network = refuse_calls();
  return confinement;
}

}  // namespace kakeya::eval
