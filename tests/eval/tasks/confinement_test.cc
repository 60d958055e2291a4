// Attacks of programs on the user's terminal, processes, files and keys: each is refused, and each
// layer refuses without the other. Needs Linux, Landlock and a python3; any user may run it.
#include "eval/tasks/confinement.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "eval/tasks/python_runner.h"
#include "formats/scratch_files.h"

#ifdef __linux__
#include <linux/landlock.h>
#include <linux/openat2.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <csignal>

#include "eval/tasks/confinement_layers.h"

namespace kakeya::eval {
namespace {

// One end of a terminal that belongs to nobody's session; its other end has the name.
struct FreeTerminal {
  Descriptor screen{::posix_openpt(O_RDWR | O_NOCTTY)};
  std::string name = {};

  FreeTerminal() {
    if (::grantpt(screen.get()) == 0 && ::unlockpt(screen.get()) == 0) {
      name = ::ptsname(screen.get());
    }
  }
};

// The exit code of a child that does this and nothing else; -1 if a signal ended it.
int in_child(const std::function<int()>& act) {
  const pid_t process = ::fork();
  if (process == 0) ::_exit(act());
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class ModelCode : public testing::Test {
 protected:
  void SetUp() override {
    auto python = PythonRunner::create("python3", {.seconds = 20.0});
    if (!python) GTEST_SKIP() << "there is no python3";
    python_.emplace(std::move(python).value());
    if (!python_->confinement().network || !python_->confinement().files) {
      GTEST_SKIP() << "this system has no seccomp filter or no Landlock, and reports say so";
    }
  }
  std::string run(const std::string& program) const { return python_->run(program)->output; }
  // Expects `outcome` of each of these lines of a program, one after another: "done" or an error's
  // name.
  void expect(const std::string& outcome, const std::vector<std::string>& lines) const {
    std::string program =
        "import ctypes, errno, fcntl, os, resource, termios\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def call(result):\n  if result < 0: raise OSError(ctypes.get_errno(), 'call')\n";
    std::string expected;
    for (const std::string& line : lines) {
      const std::string name = "r'''" + line + ": '''";
      program += "try:\n  " + line + "\n  print(" + name + " + 'done')\n";
      program += "except OSError as e: print(" + name + " + errno.errorcode[e.errno])\n";
      expected += line + ": " + outcome + "\n";
    }
    EXPECT_EQ(run(program), expected);
  }

  std::optional<PythonRunner> python_;
};

TEST_F(ModelCode, HasNoTerminal) {
  const FreeTerminal terminal;
  ASSERT_NE(terminal.name, "");
  // The caller has one, as a user who types the command.
  const int code = in_child([&] {
    ::setsid();
    if (::open(terminal.name.c_str(), O_RDWR) < 0 || ::open("/dev/tty", O_RDONLY) < 0) return 2;
    return run("print(open('/proc/self/stat').read().split(')')[-1].split()[4])") == "0\n" ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(run("import os\nprint(os.getsid(0) == os.getpid(), end='')"), "True");
}

// A reader of a terminal takes what the user types; a terminal has a name, too.
TEST_F(ModelCode, ReadsNoDevices) {
  const FreeTerminal terminal;
  ASSERT_NE(terminal.name, "");
  expect("EACCES", {"os.open('" + terminal.name + "', os.O_RDONLY)",
                    "os.open('" + terminal.name + "', os.O_RDONLY | os.O_NOCTTY)",
                    "os.open('/dev/ptmx', os.O_RDONLY)", "os.open('/dev/tty', os.O_RDONLY)"});
  expect("done", {"os.open('/dev/null', os.O_RDONLY)", "os.open('/dev/urandom', os.O_RDONLY)",
                  "os.open('/etc/passwd', os.O_RDONLY)", "os.listdir('/dev')"});
}

TEST_F(ModelCode, ControlsNoDeviceAndChangesNoFlagsOfFiles) {
  std::vector<std::string> lines;
  // TIOCSTI, TIOCLINUX, TIOCSCTTY, TCFLSH,
  // FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FICLONE
  for (const char* number :
       {"0x5412", "0x541c", "0x540e", "0x540b", "0x40086602", "0x401c5820", "0x40049409"}) {
    lines.push_back("fcntl.ioctl(os.open('.', os.O_RDONLY), " + std::string(number) +
                    ", b'\\0' * 32)");
  }
  expect("EPERM", lines);
}

TEST_F(ModelCode, SignalsNobodyByWayOfAFile) {
  std::vector<std::string> lines = {"fcntl.fcntl(os.pipe()[0], fcntl.F_SETFL, os.O_ASYNC)",
                                    "fcntl.flock(os.open('.', os.O_RDONLY), fcntl.LOCK_EX)"};
  // F_SETLK, F_SETOWN, F_SETSIG, F_SETOWN_EX, F_OFD_SETLK, F_SETLEASE, F_NOTIFY
  for (const char* command : {"6, 0", "8, 0", "10, 9", "15, 0", "37, 0", "1024, 0", "1026, 1"}) {
    lines.push_back("call(libc.fcntl(os.open('.', os.O_RDONLY), " + std::string(command) + "))");
  }
  expect("EPERM", lines);
  expect("done", {"fcntl.fcntl(os.pipe()[0], fcntl.F_SETFL, os.O_NONBLOCK)"});
}

TEST_F(ModelCode, StaysTheProcessThatItIs) {
  std::vector<std::string> lines = {"resource.prlimit(" + std::to_string(::getpid()) +
                                    ", resource.RLIMIT_CPU)"};
  // PR_SET_PDEATHSIG, by which it ends with its parent, PR_SET_DUMPABLE, PR_SET_SECCOMP,
  // PR_SET_SECUREBITS, PR_SET_CHILD_SUBREAPER, PR_SET_PTRACER
  for (const char* option : {"1", "4", "22", "28", "36", "0x59616d61"}) {
    lines.push_back("call(libc.prctl(" + std::string(option) + ", 0, 0, 0, 0))");
  }
  // A process, and threads in namespaces of their own: of mounts, names and the network.
  for (const char* flags : {"17", "0x30f00", "0x4010f00", "0x40010f00"}) {
    lines.push_back("call(libc.syscall(" + std::to_string(SYS_clone) + ", " + flags +
                    ", 0, 0, 0, 0))");
  }
  expect("EPERM", lines);
  expect("ENOSYS", {"call(libc.syscall(" + std::to_string(SYS_clone3) + ", 0, 0))"});
  expect("done", {"call(libc.prctl(15, b'name', 0, 0, 0))"});
}

// The calls of a family that are not refused are printed.
TEST_F(ModelCode, MakesNoCallsThatReachFurther) {
  const std::vector<std::pair<const char*, std::vector<long>>> families = {
      {"processes",
       {SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_process_madvise, SYS_kcmp,
        SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_pidfd_open,
        SYS_pidfd_getfd, SYS_pidfd_send_signal, SYS_setpgid, SYS_setsid, SYS_timer_create,
        SYS_wait4, SYS_waitid, SYS_execveat}},
      {"calls in a caller's place",
       {SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_io_setup, SYS_io_submit,
        SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_seccomp}},
      {"priorities",
       {SYS_sched_setscheduler, SYS_sched_setparam, SYS_sched_setattr, SYS_sched_setaffinity,
        SYS_setpriority, SYS_ioprio_set, SYS_migrate_pages, SYS_move_pages, SYS_set_mempolicy}},
      {"namespaces and mounts",
       {SYS_unshare, SYS_setns, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_fsopen,
        SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_open_tree, SYS_move_mount, SYS_mount_setattr,
        SYS_swapon, SYS_swapoff, SYS_quotactl, SYS_fanotify_init, SYS_inotify_init1}},
      {"keys", {SYS_add_key, SYS_request_key, SYS_keyctl}},
      {"network",
       {SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_listen, SYS_accept4, SYS_sendto,
        SYS_sendmsg, SYS_sendmmsg, SYS_recvfrom, SYS_recvmsg, SYS_setsockopt}},
      {"memory that others see",
       {SYS_shmget, SYS_shmat, SYS_msgget, SYS_semget, SYS_mq_open, SYS_memfd_create}},
      {"modes, owners and attributes",
       {SYS_truncate, SYS_fchmod, SYS_fchmodat, SYS_fchown, SYS_fchownat, SYS_utimensat,
        SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_removexattr, SYS_lremovexattr,
        SYS_fremovexattr, SYS_mknodat, SYS_open_by_handle_at, SYS_splice, SYS_vmsplice}},
      {"the machine",
       {SYS_setuid, SYS_setgid, SYS_setgroups, SYS_setresuid, SYS_capset, SYS_personality,
        SYS_sethostname, SYS_clock_settime, SYS_settimeofday, SYS_adjtimex, SYS_syslog, SYS_acct,
        SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_sync,
        SYS_mlockall, SYS_setrlimit}},
#ifdef __x86_64__
      {"of x86-64 alone",
       {SYS_fork, SYS_vfork, SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes, SYS_mknod,
        SYS_modify_ldt, SYS_ioperm, SYS_iopl, SYS_signalfd}},
#endif
  };
  for (const auto& [name, calls] : families) {
    std::string program = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nfor call in (";
    for (const long call : calls) program += std::to_string(call) + ", ";
    program +=
        "):\n  ctypes.set_errno(0)\n  result = libc.syscall(call, -1, -1, -1, -1, -1, -1)\n"
        "  if result != -1 or ctypes.get_errno() != 1: print(call, ctypes.get_errno())\n";
    EXPECT_EQ(run(program), "") << name;
  }
  // Those that came after the list, and the second set of numbers that x86-64 has.
  std::vector<std::string> unknown;
  for (const long call : {452L, 600L, 0x40000000L + SYS_ptrace}) {
    unknown.push_back("call(libc.syscall(" + std::to_string(call) + ", 0, 0, 0, 0))");
  }
  expect("ENOSYS", unknown);
}

// Landlock does not see this one before its version 3, so the filter alone has to.
TEST(CallFilter, KeepsFilesThatAreOpenedToReadFromBeingEmptied) {
  const ScratchFolder folder;
  const std::string path = folder.write("kept", "kept");
  const auto filtered = [](const std::function<long()>& act) {
    return in_child([&] {
      ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
      if (!allow_needed_calls()) return 255;
      return act() >= 0 ? 0 : errno;
    });
  };
  const auto opened = [&](int flags) {
    return filtered([&] { return ::open(path.c_str(), flags); });
  };
  if (opened(O_RDONLY) == 255) GTEST_SKIP() << "this system has no seccomp filter";
  EXPECT_EQ(opened(O_RDONLY), 0);
  EXPECT_EQ(opened(O_RDONLY | O_TRUNC), EPERM);
  EXPECT_EQ(opened(O_ACCMODE | O_TRUNC), EPERM);
  // Calls that libraries do not use are refused, too.
  const open_how how = {.flags = O_RDONLY | O_TRUNC, .mode = 0, .resolve = 0};
  EXPECT_EQ(
      filtered([&] { return ::syscall(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof(how)); }),
      ENOSYS);
#ifdef __x86_64__
  EXPECT_EQ(filtered([&] { return ::syscall(SYS_open, path.c_str(), O_RDONLY | O_TRUNC); }), EPERM);
#endif
  EXPECT_EQ(std::filesystem::file_size(path), 4U);
  EXPECT_EQ(opened(O_RDWR), 0) << "which is Landlock's to refuse";
  EXPECT_EQ(opened(O_WRONLY | O_TRUNC), 0);
}

TEST(Landlock, KeepsSignalsAndDevicesFromAProgramThatHasNoFilter) {
  const long version =
      ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 6) GTEST_SKIP() << "Landlock's version is " << version << ", which has no scopes";
  const ScratchFolder folder;
  const auto confined = [&](const std::function<int()>& act) {
    return in_child([&] {
      ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
      if (!confine_files(folder.path("").c_str())) return 255;
      return act() == 0 ? 0 : errno;
    });
  };
  EXPECT_EQ(confined([] { return ::kill(::getppid(), 0); }), EPERM);
  EXPECT_EQ(confined([] { return ::kill(::getpid(), 0); }), 0);
  EXPECT_EQ(confined([] { return ::ioctl(::open("/dev/null", O_RDONLY), TIOCSTI, "x"); }), EACCES);
}

TEST_F(ModelCode, HasWhatTheLanguagePromises) {
  EXPECT_EQ(run(R"(
import array, base64, bisect, calendar, cmath, collections, concurrent.futures, contextlib, copy
import csv, dataclasses, datetime, decimal, enum, fractions, functools, hashlib, heapq, inspect, io
import itertools, json, logging, math, operator, os, pathlib, pickle, queue, random, re, secrets
import shutil, signal, statistics, string, struct, sys, tempfile, textwrap, threading, time, timeit
import typing, unicodedata, unittest, uuid, zlib
print(math.isqrt(17), json.loads('[1]'), re.sub('a', 'b', 'aa'), statistics.mean([1, 2]))
print(len(secrets.token_hex(4)), len(str(uuid.uuid4())), decimal.Decimal(1) / 4)
assert 0 <= random.random() < 1 and datetime.datetime.now().year > 2000
assert hashlib.sha256(b'').hexdigest().startswith('e3b0')
with concurrent.futures.ThreadPoolExecutor(4) as pool: print(sum(pool.map(abs, range(-9, 0))))
with tempfile.TemporaryDirectory() as name:
  one = pathlib.Path(name) / 'one'
  one.write_text('x')
  with open(one, 'a') as file: file.write('y')
  shutil.copyfile(one, name + '/two')
  os.rename(one, name + '/three')
  os.makedirs(name + '/a/b')
  print(sorted(os.listdir(name)), open(name + '/three').read())
def late(*_): raise TimeoutError
signal.signal(signal.SIGALRM, late)
signal.setitimer(signal.ITIMER_REAL, 0.01)
try: time.sleep(20)
except TimeoutError: print('late')
)"),
            "4 [1] bb 1.5\n8 36 0.25\n45\n['a', 'three', 'two'] xy\nlate\n");
}

TEST_F(ModelCode, HasLimitsOfTimeMemoryAndFiles) {
  EXPECT_EQ(run("import resource as r\nfor x in (r.RLIMIT_CPU, r.RLIMIT_AS, r.RLIMIT_NOFILE, "
                "r.RLIMIT_FSIZE, r.RLIMIT_CORE): print(*r.getrlimit(x))"),
            "21 21\n1073741824 1073741824\n64 64\n1048576 1048576\n0 0\n");
  // To use up the time of a processor is to time out.
  const ChildRun busy =
      python_
          ->run(
              "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 21))\nwhile True: pass")
          .value();
  EXPECT_EQ(busy.end, ChildEnd::kTimedOut);
  EXPECT_LT(busy.seconds, 19.0);
}

}  // namespace
}  // namespace kakeya::eval
#endif
