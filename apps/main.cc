// The kakeya program: one subcommand a file.
#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <exception>
#include <limits>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "bus_error.h"
#include "cli/command.h"
#include "cli/foreign_flags.h"
#include "cli/output.h"
#include "cli/usage.h"
#include "commands.h"
#include "kakeya/version.h"

namespace {

// Digits of base ten and nothing else: CLI11 reads 010 as 8, and 10^30 as the largest number.
std::string problem_of_integer(const std::string& text, bool is_signed) {
  const std::string_view digits =
      std::string_view(text).substr(is_signed && text[0] == '-' ? 1 : 0);
  std::uint64_t magnitude = 0;
  const auto [end, failure] =
      std::from_chars(digits.data(), digits.data() + digits.size(), magnitude);
  const bool whole = failure == std::errc() && end == digits.data() + digits.size();
  const bool plain = digits.size() == 1 || !digits.starts_with('0');
  const std::uint64_t most = is_signed ? std::numeric_limits<std::int64_t>::max()
                                       : std::numeric_limits<std::uint64_t>::max();
  if (whole && plain && magnitude <= most) return "";
  return fmt::format("expected a whole number of at most {}, got '{}'", most, text);
}

// Lets every option for integers take those alone. Their types are called so, or N, or N,N,... .
void take_plain_integers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    const bool is_signed = type.starts_with("INT") || type == "N" || type.starts_with("N,");
    if (!is_signed && !type.starts_with("UINT")) continue;
    option->check(
        [is_signed](const std::string& text) { return problem_of_integer(text, is_signed); }, "",
        "plain integer");
  }
  for (CLI::App* command : app.get_subcommands(nullptr)) take_plain_integers(*command);
}

// The exit code, but for what becomes of the output.
int run_program(int argc, char** argv) {
  using namespace kakeya::cli;
  exit_on_lost_files();
  CLI::App app("Runs Gemma, Llama, Mistral and Qwen: exactly, fast, in bounded memory.", "kakeya");
  app.set_version_flag("--version", std::string("kakeya ") + kakeya::kVersion);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  int exit_code = kExitOk;
  add_run_command(app, exit_code);
  add_serve_command(app, exit_code);
  add_chat_command(app, exit_code);
  add_models_command(app, exit_code);
  add_pull_command(app, exit_code);
  add_inspect_command(app, exit_code);
  add_workshop_commands(app, exit_code);
  add_completion_command(app, exit_code);
  // After the commands, which would inherit it.
  app.footer(
      "Examples:\n"
      "  kakeya run \"Count from 5 to 12.\"               one answer of the demo model\n"
      "  kakeya run DIR \"Why is the sky blue?\"         of a model's folder or GGUF file\n"
      "  kakeya models                                  what is on this machine, by its names\n"
      "  kakeya pull OWNER/NAME                         brings one of the Hugging Face Hub's\n"
      "  kakeya chat OWNER/NAME                         a conversation, by such a name\n"
      "  kakeya serve DIR                               OpenAI's chat completions over HTTP\n"
      "  kakeya chat                                    talk to a server that runs\n"
      "  kakeya doctor                                  what this machine can do\n"
      "  kakeya bench decode --shape gemma4-26b-a4b --layers 6\n"
      "  kakeya eval spec                               is speculation exact, and is it fast\n"
      "  kakeya quantize DIR OUT                        4 bits a weight\n"
      "\n`kakeya COMMAND --help` explains a command. Exit codes: 0 ok, 1 failed check, 2 bad "
      "input, 130 Ctrl-C.");
  std::vector<const char*> words(argv, argv + argc);
  if (argc > 1 && std::string_view(argv[1]) == "help") {  // `kakeya help run`: kakeya run --help
    words.erase(words.begin() + 1);
    words.push_back("--help");
  }
  const int count = static_cast<int>(words.size());
  for (const auto describe : {describe_unknown_command, describe_foreign_flag}) {
    const std::string problem = describe(app, count, words.data());
    if (problem.empty()) continue;
    print_error("kakeya: {}\n", problem);
    return kExitBadInput;
  }
  take_plain_integers(app);
  try {
    app.parse(count, words.data());
  } catch (const CLI::ParseError& failure) {
    if (failure.get_exit_code() == 0) return app.exit(failure);  // --help, --version
    print_error("{}", describe_commands(app, failure));
    print_error("kakeya: {}\n", describe_usage_error(app, failure));
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
