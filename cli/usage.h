// Words for a command line that was mistyped.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace kakeya::cli {

// Describes what the parser of `app` has refused, and names the help of the command that was asked
// for: "unexpected argument '--max_tokens'; did you mean --max-tokens? (see kakeya run --help)".
std::string describe_usage_error(const CLI::App& app, const CLI::ParseError& failure);

}  // namespace kakeya::cli
