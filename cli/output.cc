#include "cli/output.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "cli/command.h"

namespace kakeya::cli {
namespace {

// The first error of standard output; 0: none. Of one thread, as standard output is.
int output_error = 0;

void remember(bool written) {
  if (!written && output_error == 0) output_error = errno != 0 ? errno : EIO;
}

}  // namespace

void open_standard_streams() {
  // A file at its limit (ulimit -f) fails its write, which is told, instead of ending the program.
  ::signal(SIGXFSZ, SIG_IGN);
  // open() gives the lowest number that is free. Reading from 1 lets every write to it fail.
  const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};
  for (int number = 0; number < 3; ++number) {
    if (::fcntl(number, F_GETFD) >= 0) continue;
    const int opened = ::open("/dev/null", modes[number]);
    if (opened >= 0 && opened != number) ::close(opened);
  }
}

void write_output(std::string_view text) {
  errno = 0;
  remember(std::fwrite(text.data(), 1, text.size(), stdout) == text.size());
}

void write_error(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void flush_output() {
  errno = 0;
  remember(std::fflush(stdout) == 0);
}

std::string json_text(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void print_json(const nlohmann::ordered_json& json, int indent) {
  print("{}\n", json_text(json, indent));
}

int finish_output(int exit_code) {
  errno = 0;
  std::cout.flush();  // where CLI11 writes --help
  remember(static_cast<bool>(std::cout));
  flush_output();
  if (output_error == 0) return exit_code;
  print_error("kakeya: cannot write standard output: {}\n", std::strerror(output_error));
  return kExitBadInput;
}

}  // namespace kakeya::cli
