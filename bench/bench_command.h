// `kakeya bench`: the front of this folder.
#pragma once

#include <CLI/CLI.hpp>

namespace kakeya::cli {

// Adds `kakeya bench` to the program; when a benchmark is chosen, its exit code is left in
// `exit_code`.
void add_bench_command(CLI::App& app, int& exit_code);

}  // namespace kakeya::cli
