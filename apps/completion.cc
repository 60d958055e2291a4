// kakeya completion: generated from the command line itself, so it cannot drift from --help.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "cli/command.h"
#include "cli/output.h"
#include "commands.h"

namespace kakeya::cli {
namespace {

std::vector<std::string> long_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(fmt::format("--{}", name));
  }
  return names;
}

std::vector<const CLI::App*> visible_commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : visible_commands(app)) names.push_back(command->get_name());
  return names;
}

// Words after "kakeya COMMAND": its own subcommands and options.
std::vector<std::string> words_after(const CLI::App& command) {
  std::vector<std::string> words = command_names(command);
  for (std::string& option : long_options(command)) words.push_back(std::move(option));
  return words;
}

std::string bash_script(const CLI::App& root) {
  std::string cases;
  for (const CLI::App* command : visible_commands(root)) {
    cases += fmt::format("    {}) words=\"{}\" ;;\n", command->get_name(),
                         fmt::join(words_after(*command), " "));
  }
  return fmt::format(
      "_kakeya() {{\n"
      "  local current=\"${{COMP_WORDS[COMP_CWORD]}}\" previous=\"${{COMP_WORDS[COMP_CWORD-1]}}\" "
      "words\n"
      "  case \"$previous\" in\n"
      "    --model|-m|--prompt-file|-f|--ids|--out|-o) COMPREPLY=($(compgen -f -- \"$current\")); "
      "return ;;\n"
      "  esac\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n{}"
      "    *) words=\"{} --help --version\" ;;\n"
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "}}\n"
      "complete -o filenames -F _kakeya kakeya\n",
      cases, fmt::join(command_names(root), " "));
}

// zsh runs bash completions.
std::string zsh_script(const CLI::App& root) {
  return fmt::format("autoload -U +X bashcompinit && bashcompinit\n{}", bash_script(root));
}

}  // namespace

void add_completion_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("completion", "Print a completion script for a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  command->footer("Example:\n  source <(kakeya completion bash)      the same with zsh");
  command->callback([&app, shell, &exit_code] {
    print("{}", *shell == "bash" ? bash_script(app) : zsh_script(app));
    exit_code = kExitOk;
  });
}

}  // namespace kakeya::cli
