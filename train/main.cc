// The kakeya-train program: trains what the engine uses beside a model.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "cli/output.h"
#include "cli/usage.h"
#include "drafter_command.h"
#include "kakeya/version.h"
#include "projection_command.h"

namespace kakeya::train {
namespace {

constexpr int kExitBadInput = 2;  // as of kakeya

int report_failure(std::string_view message) {
  cli::print_error("kakeya-train: {}\n", message);
  return kExitBadInput;
}

int run_program(int argc, char** argv) {
  CLI::App app("Trains what Kakeya uses beside a model.", "kakeya-train");
  app.set_version_flag("--version", std::string("kakeya-train ") + kVersion);
  app.require_subcommand(1);
  CLI::App* projection_command = app.add_subcommand(
      "projection", "What restores evicted keys and values from small codes (docs/training.md)");
  ProjectionFlags projection_flags;
  add_projection_flags(*projection_command, projection_flags);
  CLI::App* codes_command = app.add_subcommand(
      "codes", "The same with one code of so many bytes a token, and how it is best stored");
  ProjectionFlags codes_flags;
  add_codes_flags(*codes_command, codes_flags);
  CLI::App* drafter_command = app.add_subcommand(
      "drafter", "A drafter, with gradients, on the target's own replies (docs/training.md)");
  DrafterFlags drafter_flags;
  add_drafter_flags(*drafter_command, drafter_flags);
  if (const auto unknown = cli::describe_unknown_command(app, argc, argv); !unknown.empty()) {
    return report_failure(unknown);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& failure) {
    if (failure.get_exit_code() == 0) return app.exit(failure);  // --help, --version
    fmt::print(stderr, "{}", cli::describe_commands(app, failure));
    return report_failure(cli::describe_usage_error(app, failure));
  }
  Status done;
  if (projection_command->parsed()) done = run_projection_command(projection_flags);
  if (codes_command->parsed()) done = run_projection_command(codes_flags);
  if (drafter_command->parsed()) done = train_drafter(drafter_flags);
  return done ? 0 : report_failure(done.error().message());
}

}  // namespace
}  // namespace kakeya::train

int main(int argc, char** argv) {
  kakeya::cli::open_standard_streams();
  int exit_code = 2;
  // Nothing of the library throws; memory may end anywhere.
  try {
    exit_code = kakeya::train::run_program(argc, argv);
  } catch (const std::bad_alloc&) {
    exit_code = kakeya::train::report_failure("out of memory");
  } catch (const std::exception& failure) {
    exit_code = kakeya::train::report_failure(failure.what());
  }
  return kakeya::cli::finish_output(exit_code);
}
