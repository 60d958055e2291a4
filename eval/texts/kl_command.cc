// kakeya eval kl: how far one way of running a model is from another one.
#include <fmt/format.h>

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
#include "eval/texts/divergence_eval.h"
#include "eval/texts/text_sets.h"

namespace kakeya::cli {
namespace {

struct DivergenceFlags {
  ModelFlags model;
  std::string reference;  // empty: the same model
  std::string reference_backend = "cpu";
  std::string reference_compute = "f32";
  TextSetFlags texts;
  ReportFlags report;
  std::string resume;
  RunConditions conditions;
};

ModelFlags reference_flags(const DivergenceFlags& flags) {
  ModelFlags reference;
  reference.model = flags.reference.empty() ? flags.model.model : flags.reference;
  reference.backend = flags.reference_backend;
  reference.compute = flags.reference_compute;
  reference.threads = flags.model.threads;
  reference.memory = flags.model.memory;
  return reference;
}

nlohmann::ordered_json set_json(const eval::DivergenceReport& report) {
  nlohmann::ordered_json windows = nlohmann::ordered_json::array();
  for (const eval::WindowDivergence& window : report.windows) {
    windows.push_back({{"text", window.text},
                       {"tokens", window.tokens},
                       {"divergence", window.divergence},
                       {"reference_nll", window.reference_nll},
                       {"nll", window.nll},
                       {"same_top", window.same_top}});
  }
  const eval::DivergenceTotals totals = eval::divergence_totals(report.windows);
  nlohmann::ordered_json json = {{"set", report.set},
                                 {"tokens", totals.tokens},
                                 {"mean", totals.mean},
                                 {"median", report.median},
                                 {"p99", report.p99},
                                 {"most", report.most},
                                 {"top_agreement", totals.top_agreement},
                                 {"reference_perplexity", totals.reference_perplexity},
                                 {"perplexity", totals.perplexity},
                                 {"seconds", report.seconds}};
  if (eval::has_interval(report.windows.size())) {
    json["low"] = totals.interval.low;
    json["high"] = totals.interval.high;
  }
  json["windows"] = windows;
  return json;
}

std::string format_sets(const std::vector<eval::DivergenceReport>& reports) {
  std::string text = fmt::format("{:<16} {:>8} {:>11} {:>23} {:>10} {:>10} {:>10} {:>9} {:>21}\n",
                                 "texts", "tokens", "divergence", "95 % interval", "median", "p99",
                                 "most", "same top", "perplexity");
  for (const eval::DivergenceReport& report : reports) {
    const eval::DivergenceTotals totals = eval::divergence_totals(report.windows);
    text += fmt::format(
        "{:<16} {:>8} {:>11.3g} {:>23} {:>10.3g} {:>10.3g} {:>10.3g} {:>7.2f} % {:>21}\n",
        report.set, totals.tokens, totals.mean,
        eval::has_interval(report.windows.size())
            ? fmt::format("{:.3g} to {:.3g}", totals.interval.low, totals.interval.high)
            : std::string("of one window"),
        report.median, report.p99, report.most, 100.0 * totals.top_agreement,
        fmt::format("{:.4f} -> {:.4f}", totals.reference_perplexity, totals.perplexity));
  }
  return text;
}

Result<std::vector<eval::DivergenceReport>> run_sets(EngineImpl& reference,
                                                     EngineImpl& engine,
                                                     const DivergenceFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<eval::PromptSet> sets,
                          read_text_sets(reference, flags.texts));
  KAKEYA_ASSIGN_OR_RETURN(
      const auto journal,
      open_part_journal(flags.resume, "eval kl",
                        journal_run_json(engine, flags.model, {},
                                         {{"length", flags.texts.length},
                                          {"reference_weights", reference.model_fingerprint()},
                                          {"reference_backend", reference.backend_name()},
                                          {"reference_compute", flags.reference_compute}})));
  std::vector<eval::DivergenceReport> reports;
  for (const eval::PromptSet& set : sets) {
    ProgressBar bar(set.name);
    const auto on_progress = [&](std::uint64_t done, std::uint64_t total) -> Status {
      bar.update(done, total);
      return {};
    };
    KAKEYA_ASSIGN_OR_RETURN(eval::DivergenceReport report,
                            eval::evaluate_divergence(reference, engine, set, flags.texts.length,
                                                      on_progress, journal.get()));
    reports.push_back(std::move(report));
  }
  return reports;
}

nlohmann::ordered_json report_json(const DivergenceFlags& flags,
                                   const EngineImpl& reference,
                                   const EngineImpl& engine,
                                   const std::vector<eval::DivergenceReport>& reports) {
  nlohmann::ordered_json json =
      provenance_json("kakeya.eval.kl/2", flags.conditions, flags.model, engine);
  const nlohmann::ordered_json of =
      provenance_json("kakeya.eval.kl/2", flags.conditions, reference_flags(flags), reference);
  for (const char* field : {"model", "weights", "backend", "compute"}) {
    json["reference"][field] = of[field];
  }
  json["options"] = {{"length", flags.texts.length}, {"limit", flags.texts.limit}};
  for (const eval::DivergenceReport& report : reports) json["sets"].push_back(set_json(report));
  return json;
}

Status eval_kl(const DivergenceFlags& flags) {
  KAKEYA_TRY(check_report_file(flags.report));
  KAKEYA_ASSIGN_OR_RETURN(const auto reference, open_internal_engine(reference_flags(flags)));
  KAKEYA_ASSIGN_OR_RETURN(const auto engine, open_internal_engine(flags.model));
  KAKEYA_ASSIGN_OR_RETURN(const auto reports, run_sets(*reference, *engine, flags));
  const nlohmann::ordered_json json = report_json(flags, *reference, *engine, reports);
  const std::string table =
      fmt::format("{} with compute {} against {} with compute {}; windows of {} tokens\n\n{}",
                  json["model"].get<std::string>(), flags.model.compute,
                  json["reference"]["model"].get<std::string>(), flags.reference_compute,
                  flags.texts.length, format_sets(reports));
  return give_report(flags.report, json, table);
}

void add_reference_flags(CLI::App& command, DivergenceFlags& flags) {
  const std::string group = "Reference";
  command
      .add_option("--reference", flags.reference,
                  "Model folder or GGUF file that is exact (default: the model itself)")
      ->type_name("DIR")
      ->group(group);
  command
      .add_option("--reference-compute", flags.reference_compute,
                  "How it is computed: f32 (the default) or fast")
      ->check(CLI::IsMember({"fast", "f32"}))
      ->type_name("MODE")
      ->group(group);
  command
      .add_option("--reference-backend", flags.reference_backend,
                  "Where it is computed (default: cpu)")
      ->type_name("NAME")
      ->group(group);
}

}  // namespace

void add_eval_kl_command(CLI::App& eval, int& exit_code) {
  CLI::App* command = eval.add_subcommand(
      "kl", "How far flags, or another file, take a model's distributions from exact ones");
  auto flags = std::make_shared<DivergenceFlags>();
  add_reference_flags(*command, *flags);
  add_text_set_flags(*command, flags->texts);
  add_report_flags(*command, flags->report, "window");
  add_resume_flag(*command, flags->resume, "windows");
  add_engine_flags(*command, flags->model);
  add_kv_flags(*command, flags->model);
  command->footer(
      "Each text is cut into windows, which both run token by token, each from nothing. At every\n"
      "token the distribution over the next one is compared: the Kullback-Leibler divergence from\n"
      "the reference's in nats, and whether the most likely token is the same. Unless flags say\n"
      "otherwise, the reference is the same model in f32, with the KV cache in f32.\n"
      "Examples:\n"
      "  kakeya eval kl                                      what --compute fast changes\n"
      "  kakeya eval kl --kv-full e8 --kv-sliding int8\n"
      "  kakeya eval kl --model q4.gguf --reference DIR --texts wikitext2\n"
      "  kakeya eval kl --backend cuda --reference-compute fast");
  command->callback([flags, &exit_code] {
    const Status done = eval_kl(*flags);
    exit_code = done ? kExitOk : report(done.error());
  });
}

}  // namespace kakeya::cli
