// `kakeya eval`: the front of this folder.
#pragma once

#include <CLI/CLI.hpp>

namespace kakeya::cli {

// Adds `kakeya eval` to the program; when an evaluation is chosen, its exit code is left in
// `exit_code`.
void add_eval_command(CLI::App& app, int& exit_code);

}  // namespace kakeya::cli
