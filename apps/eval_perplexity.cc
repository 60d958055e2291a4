// kakeya eval perplexity: how surprised a model is by texts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "command.h"
#include "eval_common.h"
#include "internal_engine.h"
#include "output.h"
#include "perplexity_eval.h"
#include "report.h"
#include "terminal.h"

namespace kakeya::cli {
namespace {

constexpr std::array kTextSets = {"wikitext2", "prose", "code"};

struct PerplexityFlags {
  ModelFlags model;
  std::vector<std::string> texts;
  std::string file;
  std::string data;
  std::int64_t window = 512;
  std::int64_t limit = 0;  // texts of a set; 0: all
  std::string out;
  bool json = false;
  RunConditions conditions;
};

// A plain file is one text; the others are sets of the data folder.
Result<std::vector<eval::PromptSet>> read_texts(const Engine& engine,
                                                const PerplexityFlags& flags) {
  std::vector<eval::PromptSet> sets;
  const auto add = [&](const std::string& name, std::vector<eval::PromptText> texts) -> Status {
    if (flags.limit > 0 && std::ssize(texts) > flags.limit) {
      texts.resize(static_cast<std::size_t>(flags.limit));
    }
    KAKEYA_ASSIGN_OR_RETURN(eval::PromptSet set,
                            eval::encode_prompts(engine, name, texts, eval::PromptForm::kPlain));
    sets.push_back(std::move(set));
    return {};
  };
  if (!flags.file.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(std::string text, read_text(flags.file));
    const std::string name = flags.file == "-" ? "standard input" : flags.file;
    KAKEYA_TRY(add(name, {{.id = name, .prompt = std::move(text), .answer = {}}}));
    return sets;
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::string folder, data_folder(flags.data));
  for (const std::string name : kTextSets) {
    const bool chosen =
        flags.texts.empty() || std::ranges::find(flags.texts, name) != flags.texts.end();
    if (!chosen) continue;
    KAKEYA_ASSIGN_OR_RETURN(auto texts,
                            read_prompts(std::filesystem::path(folder) / (name + ".jsonl")));
    KAKEYA_TRY(add(name, std::move(texts)));
  }
  return sets;
}

nlohmann::ordered_json set_json(const eval::PerplexityReport& report) {
  nlohmann::ordered_json windows = nlohmann::ordered_json::array();
  for (const eval::WindowScore& window : report.windows) {
    windows.push_back({{"text", window.text}, {"tokens", window.tokens}, {"nll", window.nll}});
  }
  const eval::Interval interval = eval::perplexity_interval(report.windows);
  return {{"set", report.set},   {"tokens", report.tokens()}, {"perplexity", report.perplexity()},
          {"low", interval.low}, {"high", interval.high},     {"seconds", report.seconds},
          {"windows", windows}};
}

std::string format_sets(const std::vector<eval::PerplexityReport>& reports) {
  std::string text =
      fmt::format("{:<16} {:>8} {:>9} {:>11} {:>19} {:>12} {:>10}\n", "texts", "windows", "tokens",
                  "perplexity", "95 % interval", "bits a token", "tokens/s");
  for (const eval::PerplexityReport& report : reports) {
    const eval::Interval interval = eval::perplexity_interval(report.windows);
    text += fmt::format("{:<16} {:>8} {:>9} {:>11.4f} {:>19} {:>12.4f} {:>10.0f}\n", report.set,
                        report.windows.size(), report.tokens(), report.perplexity(),
                        fmt::format("{:.3f} to {:.3f}", interval.low, interval.high),
                        std::log2(report.perplexity()),
                        static_cast<double>(report.tokens()) / report.seconds);
  }
  return text;
}

Status eval_perplexity(const PerplexityFlags& flags) {
  if (!flags.out.empty()) KAKEYA_TRY(check_writable(flags.out));
  KAKEYA_ASSIGN_OR_RETURN(const std::unique_ptr<EngineImpl> engine,
                          open_internal_engine(flags.model));
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<eval::PromptSet> sets, read_texts(*engine, flags));
  std::vector<eval::PerplexityReport> reports;
  for (const eval::PromptSet& set : sets) {
    ProgressBar bar(set.name);
    eval::PerplexityOptions options{.window = flags.window,
                                    .session = engine->session_options(),
                                    .on_progress = [&](std::int64_t done, std::int64_t total) {
                                      bar.update(static_cast<std::uint64_t>(done),
                                                 static_cast<std::uint64_t>(total));
                                    }};
    KAKEYA_ASSIGN_OR_RETURN(eval::PerplexityReport report,
                            eval::evaluate_perplexity(*engine, set, options));
    reports.push_back(std::move(report));
  }
  nlohmann::ordered_json json =
      provenance_json("kakeya.eval.perplexity/1", flags.conditions, flags.model, *engine);
  json["options"] = {{"window", flags.window}, {"limit", flags.limit}};
  for (const eval::PerplexityReport& report : reports) json["sets"].push_back(set_json(report));
  if (!flags.out.empty()) KAKEYA_TRY(write_text(flags.out, json_text(json, 1) + "\n"));
  if (flags.json) {
    print_json(json);
  } else {
    print("windows of {} tokens, each from nothing; {}, {} threads, compute {}\n\n{}", flags.window,
          engine->backend_name(), engine->num_threads(), flags.model.compute, format_sets(reports));
  }
  return {};
}

}  // namespace

void add_eval_perplexity_command(CLI::App& eval, int& exit_code) {
  CLI::App* command = eval.add_subcommand("perplexity", "How surprised a model is by texts");
  auto flags = std::make_shared<PerplexityFlags>();
  command->add_option("--texts", flags->texts, "wikitext2, prose, code (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(kTextSets.begin(), kTextSets.end())))
      ->type_name("A,B,...");
  command->add_option("--file", flags->file, "A text file instead (- for standard input)")
      ->type_name("FILE");
  command
      ->add_option("--window", flags->window,
                   "Tokens that are run together, from nothing (default: 512)")
      ->check(CLI::Range(2, 1 << 24))
      ->type_name("N");
  command->add_option("--limit", flags->limit, "Only the first N texts of a set")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
  command
      ->add_option("--data", flags->data, "Folder of the texts (default: eval/data, as installed)")
      ->type_name("DIR");
  command->add_option("-o,--out", flags->out, "Write the report as JSON, with a row a window")
      ->type_name("REPORT.json");
  command->add_flag("--json", flags->json, "Print the report as JSON instead of a table");
  add_engine_flags(*command, flags->model);
  command->footer(
      "Each text is cut into windows that begin with the beginning-of-sequence token, if the model "
      "has one; all tokens of a window but its first count. The interval is of 1,000 draws of as "
      "many windows. Ways of keeping keys and values are flags, as everywhere.\n"
      "Examples:\n"
      "  kakeya eval perplexity --out report.json\n"
      "  kakeya eval perplexity --texts wikitext2 --kv-full int8 --kv-sliding int8\n"
      "  kakeya eval perplexity --model DIR --file book.txt --window 2048");
  command->callback([flags, &exit_code] {
    const Status done = eval_perplexity(*flags);
    exit_code = done ? kExitOk : report(done.error());
  });
}

}  // namespace kakeya::cli
