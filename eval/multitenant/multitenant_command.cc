// kakeya eval multitenant: do requests that share passes get the answers that they get alone?
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/command.h"
#include "cli/internal_engine.h"
#include "cli/sha256.h"
#include "cli/terminal.h"
#include "eval/command/eval_commands.h"
#include "eval/command/eval_common.h"
#include "eval/multitenant/multitenant_eval.h"
#include "runtime/session_drafts.h"

namespace kakeya::cli {
namespace {

struct TenantFlags {
  ModelFlags model;
  eval::TenantOptions options;
  std::int64_t sessions = 8;
  std::string draft_length = "auto";
  std::string prompts;
  std::string data;
  std::int64_t limit = 0;
  ReportFlags report;
  std::string resume;
  RunConditions conditions;
};

// The prompts of a user's own file, or of the public sets.
Result<std::vector<SetText>> read_tenant_sets(const TenantFlags& flags) {
  std::vector<SetText> sets;
  if (!flags.prompts.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(SetText set, read_own_set(flags.prompts, flags.limit));
    sets.push_back(std::move(set));
    return sets;
  }
  for (const NamedSet& named : named_sets()) {
    if (named.only_by_name) continue;
    if (std::string_view(named.name) == "humaneval-chat") continue;  // the texts of another one
    KAKEYA_ASSIGN_OR_RETURN(SetText set, read_named_set(named, flags.data, flags.limit));
    sets.push_back(std::move(set));
  }
  return sets;
}

// One of each set in turns, so that lengths differ; from the beginning again where a set ends.
Result<std::vector<eval::EvalPrompt>> choose_prompts(const EngineImpl& engine,
                                                     const std::vector<SetText>& texts,
                                                     std::int64_t sessions) {
  std::vector<eval::PromptSet> sets;
  for (const SetText& text : texts) {
    KAKEYA_ASSIGN_OR_RETURN(eval::PromptSet set,
                            eval::encode_prompts(engine, text.name, text.prompts, text.form));
    sets.push_back(std::move(set));
  }
  std::vector<eval::EvalPrompt> prompts;
  for (std::size_t i = 0; i < static_cast<std::size_t>(sessions); ++i) {
    const std::vector<eval::EvalPrompt>& set = sets[i % sets.size()].prompts;
    prompts.push_back(set[i / sets.size() % set.size()]);
  }
  return prompts;
}

eval::TenantFlagValues tenant_flag_values(const TenantFlags& flags) {
  const eval::TenantOptions& options = flags.options;
  return {.sessions = flags.sessions,
          .pairs = options.pairs,
          .max_tokens = options.max_tokens,
          .context = options.session.context,
          .limit = flags.limit,
          .draft = flags.model.draft,
          .draft_length = flags.draft_length,
          .temperature = options.sampling.temperature,
          .seed = options.sampling.seed};
}

std::string tenant_table(const std::vector<eval::TenantArmReport>& arms) {
  constexpr std::string_view kTitles =
      "{:<15} {:>7} {:>7} {:>9} {:>9} {:>6} {:>9} {:>9} {:>8} {:>9}\n";
  std::string text = fmt::format(kTitles, "", "equal", "tokens", "alone", "together", "times",
                                 "longest", "longest", "bytes of", "fairness");
  text += fmt::format(kTitles, "", "", "", "tokens/s", "tokens/s", "", "wait ms", "gap ms",
                      "N alone", "");
  for (const eval::TenantArmReport& arm : arms) {
    const auto equal = std::ranges::count_if(arm.requests, &eval::TenantRequest::equal);
    text += fmt::format(
        "{:<15} {:>7} {:>7} {:>9.1f} {:>9.1f} {:>6.2f} {:>9.2f} {:>9.2f} {:>8.2f} {:>9}\n",
        arm.arm.name, equal, arm.tokens(), arm.solo_tokens_per_second(),
        arm.together_tokens_per_second(), arm.throughput_ratio(), 1e3 * arm.longest_wait_seconds(),
        1e3 * arm.longest_gap_seconds(), arm.bytes_ratio(),
        arm.arm.equal_lengths ? fmt::format("{:.4f}", arm.fairness()) : "");
  }
  return text;
}

// A line for each request that differs or failed, and one for all.
std::string tenant_verdict(const std::vector<eval::TenantArmReport>& arms) {
  std::string text;
  for (const eval::TenantArmReport& arm : arms) {
    for (std::size_t i = 0; i < arm.requests.size(); ++i) {
      const eval::TenantRequest& request = arm.requests[i];
      if (!request.error.empty()) {
        text += fmt::format("{}: request {} ({}) failed: {}\n", arm.arm.name, i, request.prompt,
                            request.error);
      }
      if (request.differs_at) {
        text += fmt::format("{}: request {} ({}) DIFFERS from its answer alone at token {}\n",
                            arm.arm.name, i, request.prompt, *request.differs_at);
      }
    }
  }
  return text.empty() ? "every answer is the one that the request gets alone, id for id\n" : text;
}

Result<std::vector<eval::TenantArmReport>> run_tenant_arms(EngineImpl& engine,
                                                           TenantFlags& flags,
                                                           const std::vector<SetText>& texts) {
  KAKEYA_ASSIGN_OR_RETURN(const auto prompts, choose_prompts(engine, texts, flags.sessions));
  KAKEYA_ASSIGN_OR_RETURN(const DraftChoice choice,
                          resolve_draft_choice(flags.model.draft, engine.model_dir()));
  eval::TenantOptions& options = flags.options;
  options.session = engine.session_options();
  if (flags.model.context == 0) {
    std::size_t longest = 0;
    for (const eval::EvalPrompt& prompt : prompts) longest = std::max(longest, prompt.ids.size());
    options.session.context = static_cast<std::int64_t>(longest) + options.max_tokens;
  }
  options.hash = ids_sha256;
  ProgressBar bar("asking");
  options.on_progress = [&](std::int64_t done, std::int64_t total) {
    bar.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
  };
  nlohmann::ordered_json kept_for;
  eval::write_fields(kept_for, tenant_flag_values(flags));
  KAKEYA_ASSIGN_OR_RETURN(const auto journal,
                          open_part_journal(flags.resume, "eval multitenant",
                                            journal_run_json(engine, flags.model, {}, kept_for)));
  options.journal = journal.get();
  const std::vector<eval::TenantArm> arms = eval::tenant_arms(choice.any());
  return eval::run_tenants(engine, prompts, arms, options);
}

Result<bool> eval_multitenant(TenantFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(flags.options.draft_length, parse_draft_length(flags.draft_length));
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<SetText> texts, read_tenant_sets(flags));
  KAKEYA_TRY(check_report_file(flags.report));
  flags.model.texts = texts_for(texts);
  KAKEYA_ASSIGN_OR_RETURN(const std::unique_ptr<EngineImpl> engine,
                          open_internal_engine(flags.model));
  const double probe_before = probe_gb_per_s(*engine);
  eval::TenantsReport tenants;
  KAKEYA_ASSIGN_OR_RETURN(tenants.arms, run_tenant_arms(*engine, flags, texts));
  tenants.options = tenant_flag_values(flags);
  tenants.probe_gb_per_s = {.before = probe_before, .after = probe_gb_per_s(*engine)};
  nlohmann::ordered_json json =
      provenance_json("kakeya.multitenant/2", flags.conditions, flags.model, *engine);
  eval::write_fields(json, tenants);
  const std::string table = fmt::format(
      "{} requests at once against each alone; {}, {} threads, compute {}; {} tokens at most\n\n"
      "{}\n{}",
      flags.sessions, engine->backend_name(), engine->num_threads(), flags.model.compute,
      flags.options.max_tokens, tenant_table(tenants.arms), tenant_verdict(tenants.arms));
  KAKEYA_TRY(give_report(flags.report, json, table));
  return tenants.outputs_equal();
}

void add_tenant_flags(CLI::App& command, TenantFlags& flags) {
  command.add_option("--sessions", flags.sessions, "Requests at once (default: 8)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command
      .add_option("-n,--max-tokens", flags.options.max_tokens,
                  "Most tokens of an answer (default: 64)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  command
      .add_option("--pairs", flags.options.pairs,
                  "Timed runs, each alone and together (default: 5)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  command
      .add_option("--prompts", flags.prompts,
                  "A set of your own, as eval spec takes it (default: mt_bench, humaneval and "
                  "needle in turns)")
      ->type_name("FILE.jsonl");
  command
      .add_option("--data", flags.data,
                  "Folder of the public sets (default: eval/data, as installed)")
      ->type_name("DIR");
  command.add_option("--limit", flags.limit, "Only the first N prompts of each set")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
  command
      .add_option("--temperature", flags.options.sampling.temperature,
                  "Of sampled answers (default: 1)")
      ->check(CLI::PositiveNumber);
  command.add_option("--seed", flags.options.sampling.seed,
                     "Of the first request's sampling; the others count up from it");
  add_report_flags(command, flags.report, "request");
  add_resume_flag(command, flags.resume, "arms");
}

}  // namespace

void add_eval_multitenant_command(CLI::App& eval, int& exit_code) {
  CLI::App* command = eval.add_subcommand(
      "multitenant",
      "Requests that share passes against each alone: answers, fairness, bytes, time");
  auto flags = std::make_shared<TenantFlags>();
  flags->options.sampling = {.temperature = 1.0F, .seed = 1};
  add_tenant_flags(*command, *flags);
  add_draft_flags(*command, flags->model);
  add_draft_length_flag(*command, flags->draft_length);
  add_model_flags(*command, flags->model);
  command->footer(
      "Greedy and sampled, with drafts and without, every request is asked among the others and "
      "in a session of its own, in turns. Answers must be equal, id for id: a difference is named "
      "with its request and token, and the exit code is 1, as it is where a request fails. The "
      "last arm, equal-lengths, has prompts cut to the shortest and answers of --max-tokens: of "
      "these Jain's index says whether all are served alike (1: all, 1/N: one alone).\n"
      "Examples:\n"
      "  kakeya eval multitenant --out report.json\n"
      "  kakeya eval multitenant --model DIR --sessions 16 --max-tokens 128");
  command->callback([flags, &exit_code] {
    const Result<bool> equal = eval_multitenant(*flags);
    if (!equal) {
      exit_code = report(equal.error());
    } else {
      exit_code = *equal ? kExitOk : kExitFailedCheck;
    }
  });
}

}  // namespace kakeya::cli
