// kakeya eval: what is true of whole prompt sets, not of one prompt.
#include "eval/command/eval_command.h"

#include <string>

#include "eval/command/eval_commands.h"

namespace kakeya::cli {

void add_eval_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("eval", "Check claims over whole prompt sets");
  command->require_subcommand(1);
  std::string footer = "Examples:";
  for (const EvalCommand& each : kEvalCommands) footer += each.examples;
  command->footer(footer);
  for (const EvalCommand& each : kEvalCommands) each.add(*command, exit_code);
}

}  // namespace kakeya::cli
