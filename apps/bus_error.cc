#include "bus_error.h"

#include <signal.h>
#include <unistd.h>

#include <csignal>
#include <string_view>

#include "cli/command.h"

namespace kakeya::cli {
namespace {

// Only what POSIX allows in a signal handler. Returning repeats the access, which kills the process
// once the default is back.
void on_bus_error(int /*signal*/, siginfo_t* info, void* /*context*/) {
  if (info->si_code != BUS_ADRERR) {
    ::signal(SIGBUS, SIG_DFL);
    return;
  }
  constexpr std::string_view kMessage =
      "kakeya: cannot read a file that is in use (the model, its packed weights or a session): "
      "it "
      "became shorter, or the disk failed\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
  ::_exit(kExitBadInput);
}

}  // namespace

void exit_on_lost_files() {
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace kakeya::cli
