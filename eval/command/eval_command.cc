// kakeya eval: what is true of whole prompt sets, not of one prompt.
#include "eval/command/eval_command.h"

#include "eval/command/eval_common.h"

namespace kakeya::cli {

void add_eval_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("eval", "Check claims over whole prompt sets");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  kakeya eval spec                      speculative decoding: same output? faster?\n"
      "  kakeya eval spec --sets needle --limit 10\n"
      "  kakeya eval kv                        ways of keeping keys and values: how far from "
      "exact?\n"
      "  kakeya eval perplexity                how surprised is the model by texts?\n"
      "  kakeya eval kl                        how far do flags or another file take it from "
      "exact?\n"
      "  kakeya eval overlap                   how many experts does a block of drafts load?\n"
      "  kakeya eval niah                      are codes found that are hidden in a long text?\n"
      "  kakeya eval humaneval --run-code      how many functions does it complete?\n"
      "  kakeya eval gsm8k                     how many word problems does it solve?\n"
      "  kakeya eval longrun                   memory and latency of an hour of decoding\n"
      "  kakeya eval multitenant               do requests that share passes get their own "
      "answers?\n"
      "  kakeya eval gate docs/results         do reports carry what they claim?\n"
      "  kakeya eval report docs/results       a page with their charts");
  add_eval_spec_command(*command, exit_code);
  add_eval_kv_command(*command, exit_code);
  add_eval_perplexity_command(*command, exit_code);
  add_eval_kl_command(*command, exit_code);
  add_eval_drafter_parity_command(*command, exit_code);
  add_eval_overlap_command(*command, exit_code);
  add_eval_niah_command(*command, exit_code);
  add_eval_humaneval_command(*command, exit_code);
  add_eval_gsm8k_command(*command, exit_code);
  add_eval_longrun_command(*command, exit_code);
  add_eval_multitenant_command(*command, exit_code);
  add_eval_gate_command(*command, exit_code);
  add_eval_report_command(*command, exit_code);
}

}  // namespace kakeya::cli
