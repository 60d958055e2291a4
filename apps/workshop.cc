// The commands that measure, judge, write and describe models.
#include "backend/emulated/emulated_backends.h"
#include "bench/bench_command.h"
#include "bridge/bridge_command.h"
#include "commands.h"
#include "eval/command/eval_command.h"

namespace kakeya::cli {

void add_workshop_commands(CLI::App& app, int& exit_code) {
  add_emulated_backends();
  add_logits_command(app, exit_code);
  add_doctor_command(app, exit_code);
  add_bench_command(app, exit_code);
  add_eval_command(app, exit_code);
  add_bridge_command(app, exit_code);
  add_convert_command(app, exit_code);
  add_quantize_command(app, exit_code);
  add_calibrate_command(app, exit_code);
}

}  // namespace kakeya::cli
