// The list of the subcommands of `kakeya eval`.
#pragma once

#include <CLI/CLI.hpp>

namespace kakeya::cli {

// Each adds its subcommand to `kakeya eval`.
void add_eval_spec_command(CLI::App& eval, int& exit_code);
void add_eval_kv_command(CLI::App& eval, int& exit_code);
void add_eval_perplexity_command(CLI::App& eval, int& exit_code);
void add_eval_kl_command(CLI::App& eval, int& exit_code);
void add_eval_drafter_parity_command(CLI::App& eval, int& exit_code);
void add_eval_overlap_command(CLI::App& eval, int& exit_code);
void add_eval_niah_command(CLI::App& eval, int& exit_code);
void add_eval_bounded_command(CLI::App& eval, int& exit_code);
void add_eval_humaneval_command(CLI::App& eval, int& exit_code);
void add_eval_gsm8k_command(CLI::App& eval, int& exit_code);
void add_eval_longrun_command(CLI::App& eval, int& exit_code);
void add_eval_multitenant_command(CLI::App& eval, int& exit_code);
void add_eval_gate_command(CLI::App& eval, int& exit_code);
void add_eval_report_command(CLI::App& eval, int& exit_code);

struct EvalCommand {
  void (*add)(CLI::App& eval, int& exit_code);
  const char* examples;  // lines of the help
};

// In the order of the help.
inline constexpr EvalCommand kEvalCommands[] = {
    {add_eval_spec_command,
     "\n  kakeya eval spec                      speculative decoding: same output? faster?"
     "\n  kakeya eval spec --sets needle --limit 10"},
    {add_eval_kv_command,
     "\n  kakeya eval kv                        ways of keeping the KV cache: how far from exact?"},
    {add_eval_perplexity_command,
     "\n  kakeya eval perplexity                how surprised is the model by texts?"},
    {add_eval_kl_command,
     "\n  kakeya eval kl                        how far do flags or another file take it from "
     "exact?"},
    {add_eval_drafter_parity_command, ""},
    {add_eval_overlap_command,
     "\n  kakeya eval overlap                   how many experts does a block of drafts load?"},
    {add_eval_niah_command,
     "\n  kakeya eval niah                      are codes found that are hidden in a long text?"},
    {add_eval_bounded_command,
     "\n  kakeya eval bounded --kv-full k3v3    does bounded memory find as much, and faster?"},
    {add_eval_humaneval_command,
     "\n  kakeya eval humaneval --run-code      how many functions does it complete?"},
    {add_eval_gsm8k_command,
     "\n  kakeya eval gsm8k                     how many word problems does it solve?"},
    {add_eval_longrun_command,
     "\n  kakeya eval longrun                   memory and latency of an hour of decoding"},
    {add_eval_multitenant_command,
     "\n  kakeya eval multitenant               do requests that share passes get their own "
     "answers?"},
    {add_eval_gate_command,
     "\n  kakeya eval gate docs/results         do reports carry what they claim?"},
    {add_eval_report_command, "\n  kakeya eval report docs/results       a page with their charts"},
};

}  // namespace kakeya::cli
