// Words for a command line that was mistyped.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace kakeya::cli {

// Describes what the parser of `app` has refused, and names the help of the command that was asked
// for: "unexpected argument '--max_tokens'; did you mean --max-tokens? (see kakeya run --help)".
std::string describe_usage_error(const CLI::App& app, const CLI::ParseError& failure);

// Lists the commands where one is wanted and none was given; else empty.
std::string describe_commands(const CLI::App& app, const CLI::ParseError& failure);

// The command that a command line names, before it is parsed.
struct NamedCommand {
  const CLI::App* command = nullptr;
  std::string name = {};  // with those around it: "kakeya bench decode"
  int words = 1;          // of the command line, up to its own name
};
NamedCommand named_command(const CLI::App& app, int argc, const char* const* argv);

// Names the word of a command line that stands where a command is wanted and is none, with a
// command that it may have been meant for: "there is no command 'bench decod'; did you mean decode?
// (see kakeya bench --help)". CLI11 says "a subcommand is required" there. Empty: none is wrong.
std::string describe_unknown_command(const CLI::App& app, int argc, const char* const* argv);

}  // namespace kakeya::cli
