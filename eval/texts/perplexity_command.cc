// kakeya eval perplexity: how surprised a model is by texts.
#include <fmt/format.h>

#include <array>
#include <cmath>
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
#include "eval/texts/perplexity_eval.h"
#include "eval/texts/text_sets.h"

namespace kakeya::cli {
namespace {

// In the order of eval::Counted.
constexpr std::array kCountedNames = {"all", "second-half"};

struct PerplexityFlags {
  ModelFlags model;
  TextSetFlags texts;
  ReportFlags report;
  std::string counted = kCountedNames.front();
  std::string resume;
  RunConditions conditions;
};

nlohmann::ordered_json set_json(const eval::PerplexityReport& report) {
  nlohmann::ordered_json windows = nlohmann::ordered_json::array();
  for (const eval::WindowScore& window : report.windows) {
    windows.push_back({{"text", window.text}, {"tokens", window.tokens}, {"nll", window.nll}});
  }
  nlohmann::ordered_json json = {
      {"set", report.set}, {"tokens", report.tokens()}, {"perplexity", report.perplexity()}};
  if (eval::has_interval(report.windows.size())) {
    const eval::Interval interval = eval::perplexity_interval(report.windows);
    json["low"] = interval.low;
    json["high"] = interval.high;
  }
  json["seconds"] = report.seconds;
  json["windows"] = windows;
  return json;
}

std::string format_sets(const std::vector<eval::PerplexityReport>& reports) {
  std::string text =
      fmt::format("{:<16} {:>8} {:>9} {:>11} {:>19} {:>12} {:>10}\n", "texts", "windows", "tokens",
                  "perplexity", "95 % interval", "bits a token", "tokens/s");
  for (const eval::PerplexityReport& report : reports) {
    const eval::Interval interval = eval::perplexity_interval(report.windows);
    text += fmt::format("{:<16} {:>8} {:>9} {:>11.4f} {:>19} {:>12.4f} {:>10.0f}\n", report.set,
                        report.windows.size(), report.tokens(), report.perplexity(),
                        eval::has_interval(report.windows.size())
                            ? fmt::format("{:.3f} to {:.3f}", interval.low, interval.high)
                            : std::string("of one window"),
                        std::log2(report.perplexity()),
                        static_cast<double>(report.tokens()) / report.seconds);
  }
  return text;
}

Status eval_perplexity(const PerplexityFlags& flags) {
  KAKEYA_TRY(check_report_file(flags.report));
  KAKEYA_ASSIGN_OR_RETURN(const std::unique_ptr<EngineImpl> engine,
                          open_internal_engine(flags.model));
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<eval::PromptSet> sets,
                          read_text_sets(*engine, flags.texts));
  KAKEYA_ASSIGN_OR_RETURN(const auto journal,
                          open_part_journal(flags.resume, "eval perplexity",
                                            journal_run_json(*engine, flags.model, {},
                                                             {{"length", flags.texts.length},
                                                              {"counted", flags.counted}})));
  std::vector<eval::PerplexityReport> reports;
  for (const eval::PromptSet& set : sets) {
    ProgressBar bar(set.name);
    eval::PerplexityOptions options{
        .window = flags.texts.length,
        .counted = flags.counted == kCountedNames.front() ? eval::Counted::kAll
                                                          : eval::Counted::kSecondHalf,
        .session = engine->session_options(),
        .on_progress =
            [&](std::int64_t done, std::int64_t total) {
              bar.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
            },
        .journal = journal.get()};
    KAKEYA_ASSIGN_OR_RETURN(eval::PerplexityReport report,
                            eval::evaluate_perplexity(*engine, set, options));
    reports.push_back(std::move(report));
  }
  nlohmann::ordered_json json =
      provenance_json("kakeya.eval.perplexity/3", flags.conditions, flags.model, *engine);
  json["options"] = {
      {"window", flags.texts.length}, {"counted", flags.counted}, {"limit", flags.texts.limit}};
  for (const eval::PerplexityReport& report : reports) json["sets"].push_back(set_json(report));
  const std::string table = fmt::format(
      "windows of {} tokens, each from nothing, counted: {}; {}, {} threads, compute {}\n\n{}",
      flags.texts.length, flags.counted, engine->backend_name(), engine->num_threads(),
      flags.model.compute, format_sets(reports));
  return give_report(flags.report, json, table);
}

}  // namespace

void add_eval_perplexity_command(CLI::App& eval, int& exit_code) {
  CLI::App* command = eval.add_subcommand("perplexity", "How surprised a model is by texts");
  auto flags = std::make_shared<PerplexityFlags>();
  add_text_set_flags(*command, flags->texts);
  command
      ->add_option("--counted", flags->counted,
                   "Tokens of a window that count: all but the first (all, the default), or those "
                   "of the second half, as in llama.cpp's llama-perplexity (second-half)")
      ->check(CLI::IsMember(std::vector<std::string>(kCountedNames.begin(), kCountedNames.end())))
      ->type_name("WHICH");
  add_report_flags(*command, flags->report, "window");
  add_resume_flag(*command, flags->resume, "windows");
  add_engine_flags(*command, flags->model);
  add_kv_flags(*command, flags->model);
  command->footer(
      "Each text is cut into windows that begin with the beginning-of-sequence token, if the model "
      "has one; all tokens of a window but its first count. With --counted second-half windows "
      "follow each other, and that token takes the place of their first one. The interval is of "
      "1,000 draws of as many windows. Ways of keeping the KV cache are flags, as everywhere.\n"
      "Examples:\n"
      "  kakeya eval perplexity --out report.json\n"
      "  kakeya eval perplexity --texts wikitext2 --kv-full int8 --kv-sliding int8\n"
      "  kakeya eval perplexity --model DIR --file book.txt --length 2048 --resume run.jsonl\n"
      "  kakeya eval perplexity --model FILE.gguf --file wiki.test.raw --counted second-half     "
      "llama-perplexity -f wiki.test.raw");
  command->callback([flags, &exit_code] {
    const Status done = eval_perplexity(*flags);
    exit_code = done ? kExitOk : report(done.error());
  });
}

}  // namespace kakeya::cli
