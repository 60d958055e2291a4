// kakeya eval bounded: what bounded memory finds, takes and costs, beside plain decoding.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/command.h"
#include "cli/internal_engine.h"
#include "cli/sha256.h"
#include "cli/terminal.h"
#include "eval/bounded/bounded_eval.h"
#include "eval/command/eval_commands.h"
#include "eval/command/eval_common.h"

namespace kakeya::cli {
namespace {

constexpr const char* kHaystack = "prose.jsonl";

struct BoundedFlags {
  ModelFlags model;
  eval::BoundedOptions options;
  std::string data;
  ReportFlags report;
  RunConditions conditions;
};

// The prompts of each length, so that what does not fit is found before anything runs.
Result<std::vector<std::vector<eval::NeedlePrompt>>> make_prompts(const EngineImpl& engine,
                                                                  const BoundedFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string folder, data_folder(flags.data));
  KAKEYA_ASSIGN_OR_RETURN(const auto read, read_prompts(std::filesystem::path(folder) / kHaystack));
  std::vector<std::string> texts;
  for (const eval::PromptText& each : read) texts.push_back(each.prompt);
  KAKEYA_ASSIGN_OR_RETURN(
      const auto maker, eval::NeedlePrompts::create(engine.text(), texts, {}, flags.options.seed));
  const std::int64_t most = engine.max_context() - flags.options.max_tokens;
  std::vector<std::vector<eval::NeedlePrompt>> prompts;
  for (const std::int64_t length : flags.options.lengths) {
    if (length > most) {
      return invalid_argument("--lengths: expected at most {} tokens for this model, got {}", most,
                              length);
    }
    std::vector<eval::NeedlePrompt>& of_length = prompts.emplace_back();
    for (const std::int64_t depth : flags.options.depths) {
      for (std::int64_t index = 0; index < flags.options.samples; ++index) {
        KAKEYA_ASSIGN_OR_RETURN(eval::NeedlePrompt prompt, maker.make({length, depth, index}));
        of_length.push_back(std::move(prompt));
      }
    }
  }
  return prompts;
}

Result<eval::BoundedReport> run_bounded(EngineImpl& engine, const BoundedFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(const auto prompts, make_prompts(engine, flags));
  eval::BoundedRun run{.bounded = engine.session_options(), .hash = ids_sha256};
  run.plain.max_rows = run.bounded.max_rows;
  run.plain.drafting = false;
  eval::BoundedReport report{.options = flags.options};
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::int64_t length = flags.options.lengths[i];
    ProgressBar bar(fmt::format("{} tokens", length));
    run.on_progress = [&](std::int64_t done, std::int64_t total) {
      bar.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
    };
    KAKEYA_ASSIGN_OR_RETURN(eval::BoundedLength of_length,
                            eval::evaluate_bounded(engine, prompts[i], length, flags.options, run));
    report.lengths.push_back(std::move(of_length));
  }
  return report;
}

std::string format_bounded(const eval::BoundedReport& report) {
  std::string text =
      fmt::format("{:>8} {:>8} {:>13} {:>13} {:>14} {:>14} {:>8} {:>9} {:>9} {:>9}\n", "tokens",
                  "prompts", "found, plain", "bounded", "bytes, plain", "bounded", "share",
                  "accepted", "time", "all three");
  for (const eval::BoundedLength& each : report.lengths) {
    text += fmt::format("{:>8} {:>8} {:>13} {:>13} {:>14} {:>14} {:>8.3f} {:>9} {:>9.3f} {:>9}\n",
                        each.length, each.prompts.size(), each.plain_found(), each.bounded_found(),
                        each.plain_bytes, each.bounded_bytes, each.share_of_bytes(), each.accepted,
                        each.time_ratio(), each.all_three() ? "yes" : "no");
  }
  return text;
}

Status eval_bounded(BoundedFlags& flags) {
  const ModelFlags& model = flags.model;
  if (model.kv_full == "auto" && model.kv_sliding == "auto" && model.window == 0) {
    return invalid_argument(
        "eval bounded: expected a way to bound memory (--kv-full, --kv-sliding or --window), got "
        "none");
  }
  KAKEYA_TRY(check_session_flags(model));
  KAKEYA_TRY(check_report_file(flags.report));
  flags.model.texts = ModelTexts::kChat;
  KAKEYA_ASSIGN_OR_RETURN(const std::unique_ptr<EngineImpl> engine,
                          open_internal_engine(flags.model));
  KAKEYA_ASSIGN_OR_RETURN(const eval::BoundedReport report, run_bounded(*engine, flags));
  nlohmann::ordered_json json =
      provenance_json("kakeya.eval.bounded/1", flags.conditions, flags.model, *engine);
  eval::write_fields(json, report);
  const std::string head = fmt::format(
      "greedy replies to questions about codes in a text, {} pairs; {}, {} threads, "
      "compute {}; share and time are of plain's\n\n",
      flags.options.pairs, engine->backend_name(), engine->num_threads(), flags.model.compute);
  return give_report(flags.report, json, head + format_bounded(report));
}

void add_bounded_flags(CLI::App& command, BoundedFlags& flags) {
  command
      .add_option("--lengths", flags.options.lengths,
                  "Tokens of prompts, exactly (default: 2048,4096)")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, eval::NeedlePrompts::kMostLength))
      ->type_name("N,N,...");
  command
      .add_option("--depths", flags.options.depths,
                  "Percent of the text before the code (default: 0,25,50,75,90)")
      ->delimiter(',')
      ->check(CLI::Range(0, 100))
      ->type_name("N,N,...");
  command
      .add_option("--samples", flags.options.samples,
                  "Prompts of each length and depth (default: 4)")
      ->check(CLI::Range(1, 100000))
      ->type_name("N");
  command
      .add_option("--pairs", flags.options.pairs,
                  "Times that replies are decoded both ways (default: 5)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  command
      .add_option("-n,--max-tokens", flags.options.max_tokens,
                  "Most tokens of a reply (default: 64)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  command
      .add_option(
          "--chunk", flags.model.chunk,
          "Most tokens of one forward pass (default: 64). So many rows more are kept exactly "
          "where the others are coded or evicted")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  command.add_option("--seed", flags.options.seed, "Of the prompts (default: 42)");
  command.add_option("--data", flags.data, "Folder of the sets (default: eval/data, as installed)")
      ->type_name("DIR");
  add_report_flags(command, flags.report, "prompt");
}

}  // namespace

void add_eval_bounded_command(CLI::App& eval, int& exit_code) {
  CLI::App* command = eval.add_subcommand(
      "bounded", "Bounded memory and drafts in one run: what is found, bytes, time");
  auto flags = std::make_shared<BoundedFlags>();
  flags->model.draft = "auto";
  flags->model.chunk = 64;
  add_bounded_flags(*command, *flags);
  add_draft_flags(*command, flags->model);
  add_engine_flags(*command, flags->model);
  add_kv_flags(*command, flags->model);
  command->footer(fmt::format(
      "Each prompt hides a code in a text and asks for it. Plain decoding keeps all rows as the "
      "compute mode does and drafts nothing; the other session has the KV cache and the drafts of "
      "the flags. The three together: it finds as many codes, its KV cache has at most {} of "
      "plain's bytes, and its tokens take less time. Bytes are the ledger's; the time is of "
      "decoding, the median of the pairs, each way first in turn.\n"
      "Examples:\n"
      "  kakeya calibrate FILE.gguf && kakeya eval bounded --model FILE.gguf --kv-full k3v3\n"
      "  kakeya eval bounded --model DIR --window 512 --evicted-full drop --out report.json",
      eval::kBoundedShare));
  command->callback([flags, &exit_code] {
    const Status done = eval_bounded(*flags);
    exit_code = done ? kExitOk : report(done.error());
  });
}

}  // namespace kakeya::cli
