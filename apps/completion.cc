// kakeya completion and kakeya man-page: generated from the command line itself, so they cannot
// drift from --help.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "command.h"
#include "kakeya/version.h"
#include "output.h"

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

// Text between single quotes of a shell.
std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4) {
    text.replace(at, 1, "'\\''");
  }
  return fmt::format("'{}'", text);
}

std::string fish_script(const CLI::App& root) {
  std::string script = "complete -c kakeya -f\n";
  for (const CLI::App* command : visible_commands(root)) {
    script += fmt::format("complete -c kakeya -n __fish_use_subcommand -a {} -d {}\n",
                          command->get_name(), quoted(command->get_description()));
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        script +=
            fmt::format("complete -c kakeya -n '__fish_seen_subcommand_from {}' -l {} -d {}\n",
                        command->get_name(), name, quoted(option->get_description()));
      }
    }
  }
  return script;
}

// zsh runs bash completions.
std::string zsh_script(const CLI::App& root) {
  return fmt::format("autoload -U +X bashcompinit && bashcompinit\n{}", bash_script(root));
}

std::string roff(std::string text) {
  for (std::size_t at = 0; (at = text.find_first_of("\\-", at)) != std::string::npos; at += 2) {
    text.insert(at, "\\");
  }
  return text;
}

std::string man_options(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    text += fmt::format(".TP\n.B {}", roff(option->get_name(false, true)));
    if (option->get_type_size() != 0)
      text += fmt::format(" \\fI{}\\fR", roff(option->get_type_name()));
    text += fmt::format("\n{}\n", roff(option->get_description()));
  }
  return text;
}

void append_commands(const CLI::App& app, const std::string& prefix, std::string& page) {
  for (const CLI::App* command : visible_commands(app)) {
    const std::string name = prefix + command->get_name();
    page += fmt::format(".SS {}\n{}\n", roff(name), roff(command->get_description()));
    page += man_options(*command);
    append_commands(*command, fmt::format("{} ", name), page);
  }
}

std::string man_page(const CLI::App& root) {
  std::string page = fmt::format(
      ".TH KAKEYA 1 \"\" \"kakeya {}\" \"User Commands\"\n"
      ".SH NAME\nkakeya \\- run Gemma 4 and Qwen3 models\n"
      ".SH SYNOPSIS\n.B kakeya\n.I COMMAND\n[\\fIOPTIONS\\fR]\n"
      ".SH DESCRIPTION\n{}\n.SH COMMANDS\n",
      kVersion, roff(root.get_description()));
  append_commands(root, "kakeya ", page);
  page +=
      ".SH EXIT STATUS\n0: ok. 1: a check failed. 2: bad usage or input, with one line that says "
      "what, expected, got and where.\n";
  return page;
}

}  // namespace

void add_completion_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("completion", "Print a completion script for a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      "Example:\n  source <(kakeya completion bash)      the same with zsh; kakeya completion fish "
      "| source");
  command->callback([&app, shell, &exit_code] {
    const std::string script = *shell == "bash"  ? bash_script(app)
                               : *shell == "zsh" ? zsh_script(app)
                                                 : fish_script(app);
    print("{}", script);
    exit_code = kExitOk;
  });
  CLI::App* man = app.add_subcommand("man-page", "Print the manual page in roff");
  man->group("");  // for the installation, not for people
  man->callback([&app, &exit_code] {
    print("{}", man_page(app));
    exit_code = kExitOk;
  });
}

}  // namespace kakeya::cli
