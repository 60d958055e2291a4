// A seccomp filter with a list of what is allowed: a call that nobody thought of is refused.
#include <asm/ioctls.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include "eval/tasks/confinement_layers.h"

namespace kakeya::eval {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t kArchitecture = 0;
#endif

// Calls from here on (Linux 6.6, fchmodat2) came after this list; libraries that meet ENOSYS do
// without them. It is below the second set of numbers that x86-64 has for the same calls.
constexpr std::uint32_t kUnknownCalls = 452;

// Allowed, whatever their arguments are. A call stands here only if nothing but the process itself,
// its open files and what Landlock guards can feel it. So no file locks (others wait for them), no
// signals (not even to itself: a filter that knew the process would have to be made for each).
constexpr std::array kAllowed = {
#if defined(__x86_64__)
    SYS_access, SYS_alarm, SYS_arch_prctl, SYS_creat, SYS_dup2, SYS_epoll_create, SYS_epoll_wait,
    SYS_getpgrp, SYS_link, SYS_lstat, SYS_mkdir, SYS_pause, SYS_pipe, SYS_poll, SYS_readlink,
    SYS_rename, SYS_rmdir, SYS_select, SYS_stat, SYS_symlink, SYS_time, SYS_unlink,
#endif
    // its own memory, threads and end
    SYS_brk, SYS_execve, SYS_exit, SYS_exit_group, SYS_futex, SYS_madvise, SYS_membarrier, SYS_mmap,
    SYS_mprotect, SYS_mremap, SYS_msync, SYS_munmap, SYS_rseq, SYS_sched_yield, SYS_set_robust_list,
    SYS_set_tid_address,
    // its own signals and time
    SYS_clock_getres, SYS_clock_gettime, SYS_clock_nanosleep, SYS_getitimer, SYS_gettimeofday,
    SYS_nanosleep, SYS_restart_syscall, SYS_rt_sigaction, SYS_rt_sigpending, SYS_rt_sigprocmask,
    SYS_rt_sigreturn, SYS_rt_sigsuspend, SYS_rt_sigtimedwait, SYS_setitimer, SYS_sigaltstack,
    // what it is and where
    SYS_getcpu, SYS_getegid, SYS_geteuid, SYS_getgid, SYS_getgroups, SYS_getpgid, SYS_getpid,
    SYS_getppid, SYS_getrandom, SYS_getresgid, SYS_getresuid, SYS_getrlimit, SYS_getrusage,
    SYS_getsid, SYS_gettid, SYS_getuid, SYS_sched_getaffinity, SYS_sysinfo, SYS_times, SYS_umask,
    SYS_uname,
    // files that it has open
    SYS_close, SYS_close_range, SYS_copy_file_range, SYS_dup, SYS_dup3, SYS_epoll_create1,
    SYS_epoll_ctl, SYS_epoll_pwait, SYS_fadvise64, SYS_fallocate, SYS_fdatasync, SYS_fstat,
    SYS_fstatfs, SYS_fsync, SYS_ftruncate, SYS_getdents64, SYS_lseek, SYS_pipe2, SYS_ppoll,
    SYS_pread64, SYS_preadv, SYS_pselect6, SYS_pwrite64, SYS_pwritev, SYS_read, SYS_readv,
    SYS_sendfile, SYS_write, SYS_writev,
    // files by name
    SYS_chdir, SYS_faccessat, SYS_faccessat2, SYS_fchdir, SYS_getcwd, SYS_linkat, SYS_mkdirat,
    SYS_newfstatat, SYS_readlinkat, SYS_renameat, SYS_renameat2, SYS_statfs, SYS_statx,
    SYS_symlinkat, SYS_unlinkat};

constexpr sock_filter load(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
}
// The first word of an argument; both architectures are little-endian, and the system itself reads
// no more of those that are asked about.
constexpr sock_filter load_argument(std::size_t which) {
  return load(offsetof(seccomp_data, args) + which * sizeof(std::uint64_t));
}
constexpr sock_filter answer(std::uint32_t what) {
  return BPF_STMT(BPF_RET | BPF_K, what);
}
// Jumps over so many of the next instructions.
constexpr sock_filter jump(std::uint16_t compare, long value, std::size_t yes, std::size_t no) {
  return BPF_JUMP(static_cast<std::uint16_t>(BPF_JMP | compare | BPF_K),
                  static_cast<std::uint32_t>(value), static_cast<std::uint8_t>(yes),
                  static_cast<std::uint8_t>(no));
}
constexpr sock_filter keep_bits(std::uint32_t bits) {
  return BPF_STMT(BPF_ALU | BPF_AND | BPF_K, bits);
}

constexpr sock_filter kAllow = answer(SECCOMP_RET_ALLOW);
constexpr sock_filter kRefuse = answer(SECCOMP_RET_ERRNO | EPERM);
constexpr sock_filter kUnknown = answer(SECCOMP_RET_ERRNO | ENOSYS);

// Allows one of some values of what is loaded.
template <std::size_t kCount>
constexpr auto one_of(const std::array<long, kCount>& values) {
  std::array<sock_filter, 2 * kCount + 1> rule{};
  std::size_t at = 0;
  for (const long value : values) {
    rule[at++] = jump(BPF_JEQ, value, 0, 1);
    rule[at++] = kAllow;
  }
  rule[at] = kRefuse;
  return rule;
}

// Threads, and nothing in place of a thread: no process, no namespace, no tracer.
constexpr long kThreadFlags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                              CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID |
                              CLONE_CHILD_CLEARTID | CLONE_DETACHED;
constexpr std::array kClone = {load_argument(0), jump(BPF_JSET, CLONE_THREAD, 1, 0),
                               kRefuse,          jump(BPF_JSET, ~kThreadFlags, 0, 1),
                               kRefuse,          kAllow};

// Limits of its own process alone.
constexpr auto kPrlimit = one_of(std::array<long, 1>{0});
constexpr auto kPrctl = one_of(std::array<long, 2>{PR_SET_NAME, PR_GET_NAME});
// The requests that tell a terminal from a file, and those of Python for descriptors.
constexpr auto kIoctl = one_of(std::array<long, 5>{TCGETS, TIOCGWINSZ, FIOCLEX, FIONCLEX, FIONBIO});

// No signals by way of a file's owner, O_ASYNC or a lease. A terminal with O_ASYNC has its
// foreground group for an owner without being asked.
constexpr std::array kSetFlags = {jump(BPF_JEQ, F_SETFL, 0, 4), load_argument(2),
                                  jump(BPF_JSET, O_ASYNC, 0, 1), kRefuse, kAllow};
constexpr auto kFcntl =
    one_of(std::array<long, 5>{F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL});

// Truncates only what it opens to write, for of that Landlock knows in each of its versions.
constexpr std::array kOpen = {jump(BPF_JSET, O_TRUNC, 1, 0),
                              kAllow,
                              keep_bits(O_ACCMODE),
                              jump(BPF_JEQ, O_WRONLY, 1, 0),
                              jump(BPF_JEQ, O_RDWR, 0, 1),
                              kAllow,
                              kRefuse};

class CallFilter {
 public:
  constexpr CallFilter() {
    add(load(offsetof(seccomp_data, arch)));
    add(jump(BPF_JEQ, kArchitecture, 1, 0));
    add(answer(SECCOMP_RET_KILL_PROCESS));
    add(load(offsetof(seccomp_data, nr)));
    add(jump(BPF_JGE, kUnknownCalls, 0, 1));
    add(kUnknown);
    // Libraries make threads with clone() and open files with openat() where these are unknown; no
    // filter sees their flags, which are in memory.
    for (const long call : {SYS_clone3, SYS_openat2}) answer_to(call, kUnknown);
    check(SYS_clone, kClone);
    check_argument(SYS_prlimit64, 0, kPrlimit);
    check_argument(SYS_prctl, 0, kPrctl);
    check_argument(SYS_ioctl, 1, kIoctl);
    check_argument(SYS_openat, 2, kOpen);
#if defined(__x86_64__)
    check_argument(SYS_open, 1, kOpen);
#endif
    add(jump(BPF_JEQ, SYS_fcntl, 0, 1 + kSetFlags.size() + kFcntl.size()));
    add(load_argument(1));
    for (const sock_filter& each : kSetFlags) add(each);
    for (const sock_filter& each : kFcntl) add(each);
    for (const long call : kAllowed) answer_to(call, kAllow);
    add(kRefuse);
  }

  constexpr const sock_filter* data() const {
    return code_.data();
  }
  constexpr std::size_t size() const {
    return size_;
  }

 private:
  constexpr void add(const sock_filter& instruction) {
    code_[size_++] = instruction;
  }
  constexpr void answer_to(long call, const sock_filter& what) {
    add(jump(BPF_JEQ, call, 0, 1));
    add(what);
  }
  constexpr void check(long call, std::span<const sock_filter> rule) {
    add(jump(BPF_JEQ, call, 0, rule.size()));
    for (const sock_filter& each : rule) add(each);
  }
  constexpr void check_argument(long call, std::size_t which, std::span<const sock_filter> rule) {
    add(jump(BPF_JEQ, call, 0, rule.size() + 1));
    add(load_argument(which));
    for (const sock_filter& each : rule) add(each);
  }

  std::array<sock_filter, 512> code_{};
  std::size_t size_ = 0;
};

constexpr CallFilter kCallFilter;

}  // namespace

bool allow_needed_calls() {
  if (kArchitecture == 0) return false;
  const sock_fprog program = {.len = static_cast<unsigned short>(kCallFilter.size()),
                              // The system only reads it.
                              .filter = const_cast<sock_filter*>(kCallFilter.data())};
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace kakeya::eval
