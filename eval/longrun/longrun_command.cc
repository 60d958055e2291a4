// kakeya eval longrun: does memory stay as it is, and does a token take as long after an hour?
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/memory_budget.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/internal_engine.h"
#include "cli/sha256.h"
#include "cli/system_facts.h"
#include "cli/terminal.h"
#include "eval/command/eval_commands.h"
#include "eval/command/eval_common.h"
#include "eval/longrun/longrun_eval.h"

namespace kakeya::cli {
namespace {

struct LongRunFlags {
  ModelFlags model;
  double minutes = 60.0;
  std::int64_t tokens = 0;  // instead of minutes
  double bucket_minutes = 10.0;
  eval::LongRunOptions options;
  std::string draft_length = "auto";
  std::string set = "mt_bench";
  std::string prompts;
  std::string data;
  std::int64_t limit = 0;
  ReportFlags report;
  RunConditions conditions;
};

Result<eval::LongRunLength> read_length(const LongRunFlags& flags) {
  constexpr double kMostMinutes = 1e6;
  // Written so that what is no number is refused too.
  if (!(flags.minutes >= 0.001 && flags.minutes <= kMostMinutes)) {
    return invalid_argument("--minutes must be 0.001 to {:.0f} but is {}", kMostMinutes,
                            flags.minutes);
  }
  if (!(flags.bucket_minutes >= 1e-4)) {
    return invalid_argument("--bucket-minutes must be 0.0001 or more but is {}",
                            flags.bucket_minutes);
  }
  eval::LongRunLength length;
  length.tokens = flags.tokens;
  if (flags.tokens == 0) length.minutes = flags.minutes;
  length.buckets = eval::longrun_buckets(length.minutes, flags.bucket_minutes);
  if (length.buckets > eval::kMostBuckets) {
    return invalid_argument("--bucket-minutes: expected at most {} buckets, got {}",
                            eval::kMostBuckets, length.buckets);
  }
  return length;
}

Result<SetText> read_longrun_set(const LongRunFlags& flags) {
  if (!flags.prompts.empty()) return read_own_set(flags.prompts, flags.limit);
  const auto named = std::ranges::find(named_sets(), flags.set, &NamedSet::name);
  return read_named_set(*named, flags.data, flags.limit);
}

eval::LongRunFlagValues longrun_flag_values(const LongRunFlags& flags,
                                            const eval::PromptSet& set,
                                            std::int64_t context) {
  const eval::LongRunOptions& options = flags.options;
  return {.minutes = options.length.minutes,
          .tokens = options.length.tokens,
          .buckets = options.length.buckets,
          .sessions = options.sessions,
          .context = context,
          .window = flags.model.window,
          .sink = flags.model.sink,
          .evicted_full = flags.model.evicted_full,
          .evicted_sliding = flags.model.evicted_sliding,
          .set = set.name,
          .prompts = std::ssize(set.prompts),
          .draft = flags.model.draft,
          .draft_length = flags.draft_length,
          .temperature = options.sampling.temperature,
          .seed = options.sampling.seed};
}

// Shows a person the progress.
void show_progress(ProgressLine& line, const eval::LongRunProgress& now) {
  if (!line.is_due(now.seconds) || now.share <= 0.0) return;
  line.show(now.seconds,
            fmt::format("{:.1f} %: {} tokens in {} conversations, {:.1f} tokens/s, about {:.0f} s "
                        "left",
                        100.0 * now.share, now.tokens, now.conversations,
                        static_cast<double>(now.tokens) / now.seconds,
                        now.seconds / now.share - now.seconds));
}

std::string longrun_table(const eval::LongRunReport& run) {
  std::string text = fmt::format(
      "{:>17} {:>10} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10} {:>10} {:>10}\n", "seconds", "tokens",
      "tokens/s", "p50 ms", "p95 ms", "p99 ms", "drafted", "accepted", "ledger", "resident");
  for (const eval::LongRunBucket& row : run.buckets) {
    text += fmt::format(
        "{:>17} {:>10} {:>9.1f} {:>9.3f} {:>9.3f} {:>9.3f} {:>10} {:>10} {:>10} {:>10}\n",
        fmt::format("{:.1f}-{:.1f}", row.begin_seconds, row.end_seconds), row.tokens,
        row.tokens_per_second(), row.p50_ms, row.p95_ms, row.p99_ms, row.drafted, row.accepted,
        format_bytes(row.ledger_bytes), format_bytes(row.resident_bytes));
  }
  return text;
}

std::string longrun_verdict_text(const eval::LongRunReport& run) {
  const eval::LongRunVerdict verdict = eval::longrun_verdict(run.buckets);
  std::int64_t again = 0;
  for (const eval::LongRunAnswers& prompt : run.prompts) {
    again += std::max<std::int64_t>(0, prompt.answers - 1);
  }
  std::string text = fmt::format(
      "\n{}{} tokens in {} conversations\n"
      "a round of the last bucket takes {:.3f} times one of the first (medians)\n"
      "the ledger grew by {} bytes, what the process has in memory by {} bytes\n"
      "{} answers to a prompt that was asked before: {}\n",
      run.complete ? "" : "INCOMPLETE: ", run.tokens(), run.conversations(), verdict.p50_ratio,
      verdict.ledger_growth, verdict.resident_growth, again,
      !run.answers_equal() ? "some DIFFER from the first one"
      : again == 0         ? "nothing to compare"
                           : "all equal the first one");
  for (const eval::LongRunFailure& failure : run.failures) {
    text += fmt::format("conversation {} ({}) failed: {}\n", failure.conversation, failure.prompt,
                        failure.error);
  }
  return text;
}

Result<int> eval_longrun(LongRunFlags& flags) {
  eval::LongRunOptions& options = flags.options;
  KAKEYA_ASSIGN_OR_RETURN(options.length, read_length(flags));
  KAKEYA_ASSIGN_OR_RETURN(options.draft_length, parse_draft_length(flags.draft_length));
  KAKEYA_ASSIGN_OR_RETURN(const SetText text, read_longrun_set(flags));
  KAKEYA_TRY(check_report_file(flags.report));
  flags.model.texts = texts_for({&text, 1});
  KAKEYA_ASSIGN_OR_RETURN(const std::unique_ptr<EngineImpl> engine,
                          open_internal_engine(flags.model));
  KAKEYA_ASSIGN_OR_RETURN(const eval::PromptSet set,
                          eval::encode_prompts(*engine, text.name, text.prompts, text.form));
  options.session = engine->session_options();
  options.resident_bytes = resident_memory;
  options.hash = ids_sha256;
  const double probe_before = probe_gb_per_s(*engine);
  const InterruptGuard interrupt;
  options.interrupted = [&] { return interrupt.interrupted(); };
  Result<eval::LongRunReport> run;
  {
    ProgressLine line;
    options.on_progress = [&](const eval::LongRunProgress& now) { show_progress(line, now); };
    run = eval::run_long(*engine, set, options);
  }
  if (!run) return Unexpected(run.error());
  nlohmann::ordered_json json =
      provenance_json("kakeya.longrun/2", flags.conditions, flags.model, *engine);
  run->options = longrun_flag_values(flags, set, engine->session_context(options.session));
  run->probe_gb_per_s = {.before = probe_before, .after = probe_gb_per_s(*engine)};
  eval::write_fields(json, *run);
  const std::string table = fmt::format(
      "{}, {} threads, compute {}; {} of a context of {} tokens\n\n{}{}", engine->backend_name(),
      engine->num_threads(), flags.model.compute,
      options.sessions == 1 ? "a session" : fmt::format("{} sessions", options.sessions),
      engine->session_context(options.session), longrun_table(*run), longrun_verdict_text(*run));
  KAKEYA_TRY(give_report(flags.report, json, table));
  if (interrupt.interrupted()) return kExitInterrupted;
  const bool holds = run->complete && run->failures.empty() && run->answers_equal() &&
                     eval::longrun_verdict(run->buckets).flat();
  return holds ? kExitOk : kExitFailedCheck;
}

void add_longrun_flags(CLI::App& command, LongRunFlags& flags) {
  auto* minutes = command.add_option("--minutes", flags.minutes, "How long (default: 60)")
                      ->type_name("MINUTES");
  command.add_option("--tokens", flags.tokens, "How many tokens, instead, in six buckets")
      ->check(CLI::Range(std::int64_t{600}, std::int64_t{1} << 40))
      ->type_name("N")
      ->excludes(minutes);
  command
      .add_option("--bucket-minutes", flags.bucket_minutes,
                  "Of a row of the report (default: 10); less where there would be fewer than six")
      ->type_name("MINUTES");
  command
      .add_option("--sessions", flags.options.sessions,
                  "Conversations at once; above 1, requests of a scheduler (default: 1)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  std::vector<std::string> names;
  for (const NamedSet& set : named_sets()) names.emplace_back(set.name);
  auto* set = command.add_option("--set", flags.set, "Public prompt set (default: mt_bench)")
                  ->check(CLI::IsMember(names))
                  ->type_name("SET");
  command.add_option("--prompts", flags.prompts, "A set of your own, as eval spec takes it")
      ->type_name("FILE.jsonl")
      ->excludes(set);
  command
      .add_option("--data", flags.data,
                  "Folder of the public sets (default: eval/data, as installed)")
      ->type_name("DIR");
  command.add_option("--limit", flags.limit, "Only the first N prompts of the set")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
  command.add_option("--temperature", flags.options.sampling.temperature, "0: greedy (default: 1)")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--seed", flags.options.sampling.seed, "Of the sampling");
  add_report_flags(command, flags.report, "bucket");
}

}  // namespace

void add_eval_longrun_command(CLI::App& eval, int& exit_code) {
  CLI::App* command = eval.add_subcommand(
      "longrun", "Decode for an hour: does memory stay flat, do rounds stay as fast?");
  auto flags = std::make_shared<LongRunFlags>();
  flags->options.sampling.temperature = 1.0F;
  flags->model.window = 1024;
  flags->model.evicted_full = "drop";
  add_longrun_flags(*command, *flags);
  add_draft_flags(*command, flags->model);
  add_draft_length_flag(*command, flags->draft_length);
  add_model_flags(*command, flags->model);
  command->footer(
      "A conversation is a prompt and an answer that goes on, whatever stop ids it has, until the "
      "context (--ctx) is full; meanwhile full layers drop rows behind 1024 tokens, unless "
      "--window and --evicted-full say otherwise. Then the next prompt is asked, in the same "
      "session, and at last the first one again. So memory is bounded by the flags alone, and "
      "conversations are counted. The exit code is 1 if the ledger grew, if a conversation "
      "failed, or if a prompt got another answer than at first; the ratio of medians is for "
      "whoever reads it, since a machine's own drift is in it. Ctrl-C ends the run with a "
      "report of what there is, marked as incomplete, and exit code 130.\n"
      "Examples:\n"
      "  kakeya eval longrun --out report.json\n"
      "  kakeya eval longrun --minutes 5 --sessions 8\n"
      "  kakeya eval longrun --model DIR --tokens 100000 --ctx 32768 --kv-full int8");
  command->callback([flags, &exit_code] {
    const Result<int> code = eval_longrun(*flags);
    exit_code = code ? *code : report(code.error());
  });
}

}  // namespace kakeya::cli
