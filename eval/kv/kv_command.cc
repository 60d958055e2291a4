// kakeya eval kv: how much a way of keeping keys and values changes the model.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/status.h"
#include "cli/internal_engine.h"
#include "cli/terminal.h"
#include "eval/command/eval_commands.h"
#include "eval/command/eval_common.h"
#include "eval/kv/kv_eval.h"
#include "eval/kv/kv_report.h"

namespace kakeya::cli {
namespace {

struct NamedTexts {
  const char* name;
  const char* file;
  bool needle;
};

constexpr std::array kTexts = {
    NamedTexts{"wikitext2", "wikitext2.jsonl", false}, NamedTexts{"code", "code.jsonl", false},
    NamedTexts{"prose", "prose.jsonl", false}, NamedTexts{"needle", "needle_long.jsonl", true}};

struct KvFlags {
  ModelFlags model;
  eval::KvEvalOptions options;
  std::vector<std::string> modes;
  std::vector<std::string> texts;
  std::vector<std::int64_t> lengths = {512, 1024, 2048, 4096};
  std::int64_t limit = 0;  // texts of a set, prompts of a length; 0: all
  std::string data;
  std::string projections;  // empty: the model's own
  bool times = false;
  ReportFlags report;
  std::string resume;
  RunConditions conditions;
};

// Texts or prompts of one set and length.
struct Job {
  eval::PromptSet set;
  std::int64_t length = 0;
  bool needle = false;
};

void keep_first(std::vector<eval::EvalPrompt>& prompts, std::int64_t limit) {
  const auto most = static_cast<std::size_t>(limit);
  if (limit > 0 && prompts.size() > most) prompts.resize(most);
}

Result<Job> needle_job(const EngineImpl& engine,
                       const KvFlags& flags,
                       const std::string& name,
                       const std::vector<eval::PromptText>& all,
                       std::int64_t length) {
  std::vector<eval::PromptText> prompts;
  std::copy_if(all.begin(), all.end(), std::back_inserter(prompts),
               [&](const eval::PromptText& prompt) { return prompt.length == length; });
  if (prompts.empty()) {
    return invalid_argument("{}: expected a length with prompts (512, 1024, 2048, 4096), got {}",
                            name, length);
  }
  KAKEYA_ASSIGN_OR_RETURN(eval::PromptSet set,
                          eval::encode_prompts(engine, name, prompts, eval::PromptForm::kChat));
  keep_first(set.prompts, flags.limit);
  return Job{.set = std::move(set), .length = length, .needle = true};
}

bool is_wanted_text(const KvFlags& flags, const NamedTexts& texts) {
  return flags.texts.empty() || std::ranges::find(flags.texts, texts.name) != flags.texts.end();
}

// Everything that will be run, so that what is missing or too long is found at once.
Result<std::vector<Job>> read_jobs(const EngineImpl& engine, const KvFlags& flags) {
  for (const std::int64_t length : flags.lengths) {
    if (length > engine.max_context()) {
      return invalid_argument("--lengths: expected at most {} tokens for this model, got {}",
                              engine.max_context(), length);
    }
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::string folder, data_folder(flags.data));
  std::vector<Job> jobs;
  for (const NamedTexts& named : kTexts) {
    if (!is_wanted_text(flags, named)) continue;
    KAKEYA_ASSIGN_OR_RETURN(const auto prompts,
                            read_prompts(std::filesystem::path(folder) / named.file));
    eval::PromptSet whole;
    if (!named.needle) {
      KAKEYA_ASSIGN_OR_RETURN(
          whole, eval::encode_prompts(engine, named.name, prompts, eval::PromptForm::kPlain));
      keep_first(whole.prompts, flags.limit);
    }
    for (const std::int64_t length : flags.lengths) {
      if (named.needle) {
        KAKEYA_ASSIGN_OR_RETURN(Job job, needle_job(engine, flags, named.name, prompts, length));
        jobs.push_back(std::move(job));
      } else {
        KAKEYA_ASSIGN_OR_RETURN(eval::PromptSet cut, eval::cut_texts(whole, length));
        jobs.push_back({.set = std::move(cut), .length = length});
      }
    }
  }
  return jobs;
}

// The options that results depend on, beside texts and lengths.
nlohmann::ordered_json kv_journal_options(const std::vector<eval::KvMode>& modes,
                                          const eval::KvEvalOptions& options) {
  nlohmann::ordered_json json = {{"chunk", options.chunk},
                                 {"needle_tokens", options.needle_tokens},
                                 {"modes", nlohmann::ordered_json::array()}};
  for (const eval::KvMode& mode : modes) json["modes"].push_back(mode.name);
  return json;
}

// Times decoding behind the first text of each length.
Status measure_times(EngineImpl& engine,
                     const std::vector<Job>& jobs,
                     const eval::KvEvalOptions& options,
                     KvReports& reports) {
  for (const Job& job : jobs) {
    const auto is_there = [&](const eval::KvLengthTimes& each) {
      return each.length == job.length;
    };
    if (job.needle || std::ranges::any_of(reports.times, is_there)) continue;
    ProgressBar bar(fmt::format("times {}", job.length));
    eval::KvEvalOptions of_job = options;
    of_job.on_progress = [&](std::int64_t done, std::int64_t total) {
      bar.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
    };
    KAKEYA_ASSIGN_OR_RETURN(
        eval::KvLengthTimes times,
        eval::measure_kv_times(engine, reports.modes, job.set.prompts.front().ids, of_job));
    reports.times.push_back(std::move(times));
  }
  return {};
}

// `options`: gets the projections that modes restore with.
Result<KvReports> evaluate(EngineImpl& engine,
                           const KvFlags& flags,
                           const std::vector<Job>& jobs,
                           eval::KvEvalOptions& options) {
  KvReports reports;
  std::vector<std::string> names = flags.modes;
  if (flags.times && !names.empty()) names.emplace_back(eval::kExactMode);  // what times are beside
  KAKEYA_ASSIGN_OR_RETURN(reports.modes, eval::choose_kv_modes(names));
  KAKEYA_ASSIGN_OR_RETURN(options.projections, load_projections(engine, !flags.modes.empty(),
                                                                reports.modes, flags.projections));
  KAKEYA_ASSIGN_OR_RETURN(
      const auto journal,
      open_part_journal(flags.resume, "eval kv",
                        journal_run_json(engine, flags.model, options.projections,
                                         kv_journal_options(reports.modes, options))));
  for (const Job& job : jobs) {
    ProgressBar bar(fmt::format("{} {}", job.set.name, job.length));
    eval::KvEvalOptions of_job = options;
    of_job.journal = journal.get();
    of_job.on_progress = [&](std::int64_t done, std::int64_t total) {
      bar.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
    };
    if (job.needle) {
      KAKEYA_ASSIGN_OR_RETURN(
          eval::KvNeedleReport report,
          eval::evaluate_kv_needles(engine, reports.modes, job.set, job.length, of_job));
      reports.needles.push_back(std::move(report));
    } else {
      KAKEYA_ASSIGN_OR_RETURN(
          eval::KvTextReport report,
          eval::evaluate_kv_texts(engine, reports.modes, job.set, job.length, of_job));
      reports.texts.push_back(std::move(report));
    }
  }
  if (flags.times) KAKEYA_TRY(measure_times(engine, jobs, options, reports));
  return reports;
}

Result<bool> eval_kv(const KvFlags& flags) {
  KAKEYA_TRY(check_report_file(flags.report));
  ModelFlags model = flags.model;
  for (const NamedTexts& named : kTexts) {
    if (named.needle && is_wanted_text(flags, named)) model.texts = ModelTexts::kChat;
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::unique_ptr<EngineImpl> engine, open_internal_engine(model));
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<Job> jobs, read_jobs(*engine, flags));
  eval::KvEvalOptions options = flags.options;
  KAKEYA_ASSIGN_OR_RETURN(const KvReports reports, evaluate(*engine, flags, jobs, options));

  nlohmann::ordered_json json = provenance_json("kakeya.eval.kv/4", flags.conditions, flags.model,
                                                *engine, options.projections);
  json["options"] = {{"lengths", flags.lengths},
                     {"limit", flags.limit},
                     {"chunk", flags.options.chunk},
                     {"needle_tokens", flags.options.needle_tokens},
                     {"times", flags.times}};
  add_kv_json(json, reports);
  const std::string table = fmt::format(
      "ways of keeping the KV cache against {}; {}, {} threads, compute {}; {} tokens a "
      "pass\n\n{}",
      flags.model.compute == "f32" ? "f32" : "bf16", engine->backend_name(), engine->num_threads(),
      flags.model.compute, flags.options.chunk, format_kv(reports));
  KAKEYA_TRY(give_report(flags.report, json, table));
  return reports.exact_is_exact();
}

std::vector<std::string> text_names() {
  std::vector<std::string> names;
  for (const NamedTexts& named : kTexts) names.emplace_back(named.name);
  return names;
}

void add_kv_flags(CLI::App& command, KvFlags& flags) {
  add_modes_flag(command, flags.modes,
                 "Ways of keeping the KV cache (default: all but recompute, which is slow)");
  command
      .add_option("--lengths", flags.lengths,
                  "Tokens of the texts and needle prompts (default: 512,1024,2048,4096)")
      ->delimiter(',')
      ->check(CLI::Range(2, 1 << 30))
      ->type_name("N,N,...");
  command.add_option("--texts", flags.texts, "wikitext2, code, prose, needle (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember(text_names()))
      ->type_name("A,B,...");
  command
      .add_option("--limit", flags.limit,
                  "Only the first N texts of a set, and N needle prompts of a length")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
  command
      .add_option("--chunk", flags.options.chunk,
                  "Tokens of one pass (default: 64): smaller is closer to decoding for a mode that "
                  "forgets between passes")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  command
      .add_option("--data", flags.data, "Folder of the texts (default: eval/data, as installed)")
      ->type_name("DIR");
  command
      .add_option("--projections", flags.projections,
                  "Folder with the projections that modes restore with, aux, context and token "
                  "(default: the model's projections/)")
      ->type_name("DIR");
  command.add_flag("--times", flags.times,
                   "Decode on behind a text of each length, the modes in turns: what each costs in "
                   "time (on an idle machine)");
  add_report_flags(command, flags.report, "mode");
  add_resume_flag(command, flags.resume, "texts and prompts");
}

}  // namespace

void add_eval_kv_command(CLI::App& eval, int& exit_code) {
  CLI::App* command = eval.add_subcommand(
      "kv", "Ways of keeping the KV cache against the exact one: distributions and bytes");
  auto flags = std::make_shared<KvFlags>();
  flags->model.draft = "auto";  // features of projections; the sessions do not draft
  add_kv_flags(*command, *flags);
  add_engine_flags(*command, flags->model);
  command->footer(
      "Each text is run with its own tokens as input by the exact model and by every mode, and the "
      "distributions over the next token are compared at every position: KL divergence in nats, "
      "agreement of the most likely token, perplexity. Bytes are those of the cache. needle counts "
      "replies that contain the code. With --times five samples of each mode "
      "say how its tokens compare in time. The exit code is 1 if the mode exact is not exact.\n"
      "Examples:\n"
      "  kakeya eval kv --out report.json\n"
      "  kakeya eval kv --modes int8,k4v4,drop-512 --texts code --lengths 4096 --times\n"
      "  kakeya eval kv --modes bf16 --compute f32 --lengths 512 --texts wikitext2 --limit 1");
  command->callback([flags, &exit_code] {
    const auto exact = eval_kv(*flags);
    if (!exact) {
      exit_code = report(exact.error());
    } else {
      exit_code = *exact ? kExitOk : kExitFailedCheck;
    }
  });
}

}  // namespace kakeya::cli
