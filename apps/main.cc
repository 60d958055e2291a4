// The kakeya program: one subcommand a file.
#include <exception>
#include <new>

#include "bus_error.h"
#include "command.h"
#include "kakeya/version.h"
#include "output.h"

namespace {

// CLI11 answers an unknown command with "a subcommand is required"; say which word it was.
bool is_unknown_command(const CLI::App& app, const std::string& word) {
  if (word.empty() || word.front() == '-') return false;
  return app.get_subcommands([&](const CLI::App* command) { return command->check_name(word); })
      .empty();
}

// The exit code, but for what becomes of the output.
int run_program(int argc, char** argv) {
  using namespace kakeya::cli;
  exit_on_lost_files();
  CLI::App app("Runs Gemma 4 and Qwen3 models: exactly, fast, in bounded memory.", "kakeya");
  app.set_version_flag("--version", std::string("kakeya ") + kakeya::kVersion);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer(
      "Examples:\n"
      "  kakeya run --prompt \"Count from 5 to 12.\"      one answer of the demo model\n"
      "  kakeya run --chat --model DIR                  a conversation\n"
      "  kakeya doctor                                  what this machine can do\n"
      "  kakeya bench decode --shape gemma4-26b-a4b --layers 6\n"
      "  kakeya eval spec                               is speculation exact, and is it fast\n"
      "  kakeya quantize DIR OUT                        4 bits a weight\n"
      "\n`kakeya COMMAND --help` explains a command. Exit codes: 0 ok, 1 failed check, 2 bad "
      "input.");
  int exit_code = kExitOk;
  add_run_command(app, exit_code);
  add_logits_command(app, exit_code);
  add_inspect_command(app, exit_code);
  add_doctor_command(app, exit_code);
  add_bench_command(app, exit_code);
  add_eval_command(app, exit_code);
  add_convert_command(app, exit_code);
  add_quantize_command(app, exit_code);
  add_completion_command(app, exit_code);
  if (argc > 1 && is_unknown_command(app, argv[1])) {
    print_error("kakeya: there is no command '{}' (see kakeya --help)\n", argv[1]);
    return kExitBadInput;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& failure) {
    if (failure.get_exit_code() == 0) return app.exit(failure);  // --help, --version
    print_error("kakeya: {} (see kakeya --help)\n", failure.what());
    return kExitBadInput;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace kakeya::cli;
  open_standard_streams();
  int exit_code = kExitBadInput;
  // The library throws nothing of its own; memory may end anywhere.
  try {
    exit_code = run_program(argc, argv);
  } catch (const std::bad_alloc&) {
    print_error("kakeya: out of memory\n");
  } catch (const std::exception& failure) {
    print_error("kakeya: {}\n", failure.what());
  }
  return finish_output(exit_code);
}
