// `kakeya bridge`: the front of this folder.
#pragma once

#include <CLI/CLI.hpp>

namespace kakeya::cli {

// Adds `kakeya bridge` to the program; when it is chosen, its exit code is left in `exit_code`.
void add_bridge_command(CLI::App& app, int& exit_code);

}  // namespace kakeya::cli
