// kakeya eval spec: speculative decoding, its output and its speed, over whole prompt sets.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status.h"
#include "cli/command.h"
#include "cli/internal_engine.h"
#include "cli/terminal.h"
#include "eval/command/eval_commands.h"
#include "eval/command/eval_common.h"
#include "eval/prompts/prompt_set.h"
#include "eval/spec/speculation_eval.h"
#include "eval/spec/speculation_report.h"
#include "runtime/session_drafts.h"

namespace kakeya::cli {
namespace {

struct EvalFlags {
  ModelFlags model;
  eval::SpeculationEvalOptions options;
  std::vector<std::string> sets;
  std::string data;
  std::string prompts;
  std::int64_t limit = 0;  // prompts of a set; 0: all
  std::string draft_length = "auto";
  ReportFlags report;
  std::string resume;
  RunConditions conditions;
};

// The sets of --sets, then that of --prompts; if neither is given, all public ones but those that
// are run by name only.
Result<std::vector<SetText>> read_sets(const EvalFlags& flags) {
  std::vector<SetText> sets;
  const bool none_named = flags.sets.empty() && flags.prompts.empty();
  for (const NamedSet& named : named_sets()) {
    const bool chosen =
        std::find(flags.sets.begin(), flags.sets.end(), named.name) != flags.sets.end();
    if (!chosen && (!none_named || named.only_by_name)) continue;
    KAKEYA_ASSIGN_OR_RETURN(SetText set, read_named_set(named, flags.data, flags.limit));
    sets.push_back(std::move(set));
  }
  if (!flags.prompts.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(SetText set, read_own_set(flags.prompts, flags.limit));
    sets.push_back(std::move(set));
  }
  return sets;
}

Result<std::unique_ptr<EngineImpl>> open_drafting_engine(EvalFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(const EngineOptions options, engine_options(flags.model));
  KAKEYA_ASSIGN_OR_RETURN(const DraftChoice choice,
                          resolve_draft_choice(options.draft.source, options.model_dir));
  if (!choice.any()) {
    return error(StatusCode::kFailedPrecondition,
                 "nothing drafts with --draft {} and {}; expected a drafter's folder, ngram, or a "
                 "model with a drafter/ folder",
                 options.draft.source, options.model_dir);
  }
  flags.options.session = options.session;
  return open_internal_engine(flags.model);
}

nlohmann::ordered_json speculation_options_json(const EvalFlags& flags) {
  const GenerateOptions& generate = flags.options.generate;
  return {{"max_tokens", generate.max_tokens},
          {"pairs", flags.options.pairs},
          {"limit", flags.limit},
          {"draft_length", flags.draft_length},
          {"forced_rejection", flags.options.forced_rejection},
          {"temperature", generate.sampling.temperature},
          {"seed", generate.sampling.seed}};
}

Result<std::vector<eval::SpeculationReport>> evaluate(EngineImpl& engine,
                                                      const EvalFlags& flags,
                                                      const std::vector<SetText>& texts) {
  // All of them first, so that a prompt that cannot be encoded is found at once.
  std::vector<eval::PromptSet> sets;
  for (const SetText& text : texts) {
    KAKEYA_ASSIGN_OR_RETURN(eval::PromptSet set,
                            eval::encode_prompts(engine, text.name, text.prompts, text.form));
    sets.push_back(std::move(set));
  }
  KAKEYA_ASSIGN_OR_RETURN(const auto journal,
                          open_part_journal(flags.resume, "eval spec",
                                            journal_run_json(engine, flags.model, {},
                                                             speculation_options_json(flags))));
  std::vector<eval::SpeculationReport> reports;
  for (const eval::PromptSet& set : sets) {
    ProgressBar bar(set.name);
    eval::SpeculationEvalOptions options = flags.options;
    options.journal = journal.get();
    options.on_progress = [&](std::int64_t done, std::int64_t total) {
      bar.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
    };
    KAKEYA_ASSIGN_OR_RETURN(eval::SpeculationReport report,
                            eval::evaluate_speculation(engine, set, options));
    reports.push_back(std::move(report));
  }
  return reports;
}

// Everything of the report but the measurements.
nlohmann::ordered_json speculation_provenance_json(const EvalFlags& flags,
                                                   const EngineImpl& engine) {
  const std::int64_t block =
      engine.drafter() == nullptr ? 0 : engine.drafter()->config().block_size;
  nlohmann::ordered_json json =
      provenance_json("kakeya.eval.spec/3", flags.conditions, flags.model, engine);
  json["draft"] = flags.model.draft;
  json["drafter_block"] = block;
  json["options"] = speculation_options_json(flags);
  return json;
}

Result<bool> eval_spec(EvalFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(flags.options.generate.draft_length,
                          parse_draft_length(flags.draft_length));
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<SetText> texts, read_sets(flags));
  KAKEYA_TRY(check_report_file(flags.report));
  flags.model.texts = texts_for(texts);
  KAKEYA_ASSIGN_OR_RETURN(const std::unique_ptr<EngineImpl> engine, open_drafting_engine(flags));
  KAKEYA_ASSIGN_OR_RETURN(const auto reports, evaluate(*engine, flags, texts));

  nlohmann::ordered_json json = speculation_provenance_json(flags, *engine);
  add_speculation_json(json, reports, engine->cost_table());
  const std::string table = fmt::format(
      "speculative against plain decoding; {}, {} threads, compute {}; {} tokens at most, draft "
      "length {}{}\n\n{}",
      engine->backend_name(), engine->num_threads(), flags.model.compute,
      flags.options.generate.max_tokens, flags.draft_length,
      flags.options.forced_rejection ? ", every draft replaced by a wrong one" : "",
      format_speculation(reports));
  KAKEYA_TRY(give_report(flags.report, json, table));
  return json["outputs_equal"].get<bool>();
}

void add_spec_flags(CLI::App& command, EvalFlags& flags) {
  std::vector<std::string> names;
  for (const NamedSet& set : named_sets()) names.emplace_back(set.name);
  command.add_option("--sets", flags.sets, "Public prompt sets (default: the first four)")
      ->delimiter(',')
      ->check(CLI::IsMember(names))
      ->type_name("A,B,...");
  command
      .add_option("--data", flags.data,
                  "Folder of the public sets (default: eval/data, as installed)")
      ->type_name("DIR");
  command
      .add_option("--prompts", flags.prompts,
                  "A set of your own: lines of {\"prompt\": ..., \"id\": ..., \"answer\": ...}, of "
                  "which prompt is needed")
      ->type_name("FILE.jsonl");
  command.add_option("--limit", flags.limit, "Only the first N prompts of each set")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
  command
      .add_option("-n,--max-tokens", flags.options.generate.max_tokens,
                  "Most tokens of a reply (default: 128)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  command
      .add_option("--pairs", flags.options.pairs,
                  "Timed passes over a set, each prompt both ways (default: 3)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  command
      .add_option("--temperature", flags.options.generate.sampling.temperature,
                  "0: greedy (default)")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--seed", flags.options.generate.sampling.seed, "Of the sampling");
  add_report_flags(command, flags.report, "set");
  add_resume_flag(command, flags.resume, "sets");
}

}  // namespace

void add_eval_spec_command(CLI::App& eval, int& exit_code) {
  CLI::App* spec = eval.add_subcommand(
      "spec", "Speculative against plain decoding: output, acceptance and time");
  auto flags = std::make_shared<EvalFlags>();
  add_spec_flags(*spec, *flags);
  add_draft_flags(*spec, flags->model);
  add_draft_length_flag(*spec, flags->draft_length);
  spec->add_flag("--forced-rejection", flags->options.forced_rejection,
                 "Replace every draft by a wrong one: what drafting costs when nothing is accepted")
      ->group("Speculation");
  add_model_flags(*spec, flags->model);
  spec->footer(
      "Every prompt runs both ways in each pair: drafted, and in a session without drafts; tokens "
      "and stop reasons must be the same (else the exit "
      "code is 1), and the time ratio is the median of the pairs. Times are of decoding, without "
      "prefill. humaneval continues the bare text; the other sets go through the chat template.\n"
      "Examples:\n"
      "  kakeya eval spec --out report.json\n"
      "  kakeya eval spec --forced-rejection\n"
      "  kakeya eval spec --sets code --max-tokens 256\n"
      "  kakeya eval spec --model DIR --draft DIR --sets mt_bench --limit 20 --pairs 1\n"
      "  kakeya eval spec --prompts mine.jsonl --temperature 0.8 --seed 7");
  spec->callback([flags, &exit_code] {
    const auto equal = eval_spec(*flags);
    if (!equal) {
      exit_code = report(equal.error());
    } else {
      exit_code = *equal ? kExitOk : kExitFailedCheck;
    }
  });
}

}  // namespace kakeya::cli
