// The subcommands of the program that are in this folder.
#pragma once

#include <CLI/CLI.hpp>

namespace kakeya::cli {

struct RunFlags;

// Each adds its subcommand to `app`; when it is chosen, its exit code is left in `exit_code`.
void add_run_command(CLI::App& app, int& exit_code);
void add_serve_command(CLI::App& app, int& exit_code);
void add_chat_command(CLI::App& app, int& exit_code);
void add_logits_command(CLI::App& app, int& exit_code);
void add_inspect_command(CLI::App& app, int& exit_code);
void add_models_command(CLI::App& app, int& exit_code);
void add_pull_command(CLI::App& app, int& exit_code);
void add_doctor_command(CLI::App& app, int& exit_code);
void add_convert_command(CLI::App& app, int& exit_code);
void add_quantize_command(CLI::App& app, int& exit_code);
void add_calibrate_command(CLI::App& app, int& exit_code);
void add_completion_command(CLI::App& app, int& exit_code);

// Those that measure, judge, write and describe models: logits, doctor, bench, eval, bridge,
// convert, quantize, calibrate; and the backends for tests.
void add_workshop_commands(CLI::App& app, int& exit_code);

// Runs `kakeya run` with flags that are checked here; returns its exit code.
int run(RunFlags& flags);

}  // namespace kakeya::cli
