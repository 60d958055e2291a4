// kakeya eval overlap: how many distinct experts neighbouring and drafted rows load.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/command.h"
#include "cli/internal_engine.h"
#include "cli/terminal.h"
#include "eval/command/eval_commands.h"
#include "eval/command/eval_common.h"
#include "eval/overlap/overlap_eval.h"
#include "eval/overlap/routing_log.h"

namespace kakeya::cli {
namespace {

struct OverlapSet {
  const char* name;
  eval::PromptForm form;
};

constexpr std::array kOverlapSets = {OverlapSet{"wikitext2", eval::PromptForm::kPlain},
                                     OverlapSet{"code", eval::PromptForm::kPlain},
                                     OverlapSet{"humaneval", eval::PromptForm::kRaw},
                                     OverlapSet{"mt_bench", eval::PromptForm::kChat}};

struct OverlapFlags {
  ModelFlags model;
  eval::OverlapOptions options = {.draft_length = 3};
  std::vector<std::string> sets;
  std::string data;
  std::int64_t limit = 20;
  ReportFlags report;
  std::string resume;
  RunConditions conditions;
};

bool is_wanted_set(const OverlapFlags& flags, const OverlapSet& set) {
  return flags.sets.empty() || std::ranges::find(flags.sets, set.name) != flags.sets.end();
}

Result<std::vector<eval::PromptSet>> read_sets(const EngineImpl& engine,
                                               const OverlapFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string folder, data_folder(flags.data));
  const std::int64_t room = engine.session_context() - flags.options.max_tokens - 1;
  std::vector<eval::PromptSet> sets;
  for (const OverlapSet& named : kOverlapSets) {
    if (!is_wanted_set(flags, named)) continue;
    KAKEYA_ASSIGN_OR_RETURN(auto texts, read_prompts(std::filesystem::path(folder) /
                                                     (std::string(named.name) + ".jsonl")));
    if (std::ssize(texts) > flags.limit) texts.resize(static_cast<std::size_t>(flags.limit));
    KAKEYA_ASSIGN_OR_RETURN(eval::PromptSet set,
                            eval::encode_prompts(engine, named.name, texts, named.form));
    for (eval::EvalPrompt& prompt : set.prompts) {
      if (std::ssize(prompt.ids) > room) prompt.ids.resize(static_cast<std::size_t>(room));
    }
    sets.push_back(std::move(set));
  }
  return sets;
}

std::string format_rows(const std::string& name,
                        const std::vector<eval::OverlapRow>& rows,
                        std::int64_t top_k) {
  std::string text;
  for (const eval::OverlapRow& row : rows) {
    const double choices = static_cast<double>(row.pairs * top_k);
    text += fmt::format(
        "{:<22} {:>5} {:>8} {:>9.2f} {:>9.2f} {:>12.2f} {:>7.3f} {:>12}\n", name, row.rows,
        row.blocks, row.mean_distinct(), row.uniform, row.by_frequency,
        row.mean_distinct() / row.by_frequency,
        row.pairs == 0
            ? std::string("-")
            : fmt::format("{:.1f} %", 100.0 * static_cast<double>(row.shared) / choices));
  }
  return text;
}

std::string format_reports(const std::vector<eval::OverlapSetReport>& reports, std::int64_t top_k) {
  std::string text =
      fmt::format("{:<22} {:>5} {:>8} {:>9} {:>9} {:>12} {:>7} {:>12}\n", "", "rows", "blocks",
                  "distinct", "evenly", "by frequency", "ratio", "neighbours");
  for (const eval::OverlapSetReport& report : reports) {
    text += format_rows(report.set, report.text, top_k);
    text += format_rows(report.set + ", drafted", report.drafts, top_k);
  }
  return text;
}

Status eval_overlap(OverlapFlags& flags) {
  KAKEYA_TRY(check_report_file(flags.report));
  for (const OverlapSet& named : kOverlapSets) {
    if (named.form == eval::PromptForm::kChat && is_wanted_set(flags, named)) {
      flags.model.texts = ModelTexts::kChat;
    }
  }
  eval::RoutingLog log;
  KAKEYA_ASSIGN_OR_RETURN(const std::unique_ptr<EngineImpl> engine,
                          open_internal_engine(flags.model, [&](std::unique_ptr<Backend> inner) {
                            return std::make_unique<eval::RoutingBackend>(std::move(inner), log);
                          }));
  const ModelConfig& config = engine->config();
  if (config.num_experts == 0) {
    return error(StatusCode::kFailedPrecondition,
                 "{}: expected a mixture of experts, got a model without", flags.model.model);
  }
  if (engine->drafter() == nullptr) flags.options.draft_length = 0;
  flags.options.num_experts = config.num_experts;
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<eval::PromptSet> sets, read_sets(*engine, flags));
  KAKEYA_ASSIGN_OR_RETURN(
      const auto journal,
      open_part_journal(flags.resume, "eval overlap",
                        journal_run_json(*engine, flags.model, {},
                                         {{"max_tokens", flags.options.max_tokens},
                                          {"draft_length", flags.options.draft_length}})));
  flags.options.journal = journal.get();
  std::vector<eval::OverlapSetReport> reports;
  for (const eval::PromptSet& set : sets) {
    ProgressBar bar(set.name);
    flags.options.on_progress = [&](std::int64_t done, std::int64_t total) {
      bar.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
    };
    KAKEYA_ASSIGN_OR_RETURN(eval::OverlapSetReport report,
                            eval::evaluate_overlap(*engine, log, set, flags.options));
    reports.push_back(std::move(report));
  }
  nlohmann::ordered_json json =
      provenance_json("kakeya.eval.overlap/2", flags.conditions, flags.model, *engine);
  const eval::OverlapReport overlap{.options = {.limit = flags.limit,
                                                .max_tokens = flags.options.max_tokens,
                                                .draft_length = flags.options.draft_length},
                                    .num_experts = config.num_experts,
                                    .top_k_experts = config.top_k_experts,
                                    .sets = std::move(reports)};
  eval::write_fields(json, overlap);
  const std::string table = fmt::format(
      "{} experts, {} of them a row; distinct experts of a block, mean over layers\n\n{}",
      config.num_experts, config.top_k_experts, format_reports(overlap.sets, config.top_k_experts));
  return give_report(flags.report, json, table);
}

}  // namespace

void add_eval_overlap_command(CLI::App& eval, int& exit_code) {
  CLI::App* command = eval.add_subcommand(
      "overlap", "Mixtures of experts: distinct experts that neighbouring and drafted rows load");
  auto flags = std::make_shared<OverlapFlags>();
  flags->model.draft = "auto";
  std::vector<std::string> names;
  for (const OverlapSet& named : kOverlapSets) names.emplace_back(named.name);
  command->add_option("--sets", flags->sets, "wikitext2, code, humaneval, mt_bench (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember(names))
      ->type_name("A,B,...");
  command->add_option("--limit", flags->limit, "Prompts of a set (default: 20)")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
  command
      ->add_option("--draft-length", flags->options.draft_length,
                   "Drafts of a block that is verified (default: 3; 0: none)")
      ->check(CLI::Range(0, 64))
      ->type_name("N");
  command
      ->add_option("-n,--max-tokens", flags->options.max_tokens,
                   "Most tokens of a drafted reply (default: 64)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  command
      ->add_option("--data", flags->data, "Folder of the sets (default: eval/data, as installed)")
      ->type_name("DIR");
  add_report_flags(*command, flags->report, "set");
  add_resume_flag(*command, flags->resume, "prompts");
  add_draft_flags(*command, flags->model);
  add_engine_flags(*command, flags->model);
  command->footer(
      "A pass reads each expert once that one of its rows is routed to, so a block of drafts costs "
      "what its distinct experts take. Two models stand beside: rows that choose evenly, and rows "
      "that choose as often as the layer does, each for itself; the ratio is to the second. "
      "Neighbours: how many of a row's experts the row before has, too.\n"
      "Examples:\n"
      "  kakeya eval overlap\n"
      "  kakeya eval overlap --model DIR --sets humaneval --draft-length 7 --out report.json");
  command->callback([flags, &exit_code] {
    const Status done = eval_overlap(*flags);
    exit_code = done ? kExitOk : report(done.error());
  });
}

}  // namespace kakeya::cli
