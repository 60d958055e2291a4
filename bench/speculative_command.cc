// kakeya bench speculative: what drafting is worth at a given acceptance, and whether the automatic
// length finds it.
#include <fmt/format.h>

#include <memory>

#include "base/status.h"
#include "bench/bench_flags.h"
#include "bench/speculative_bench.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/terminal.h"

namespace kakeya::cli {
namespace {

struct SpeculativeFlags {
  BenchFlags bench;
  bench::SpeculativeBenchOptions options;
};

std::string length_name(std::int64_t length) {
  if (length == kAutoDraftLength) return "auto";
  return length == 0 ? "plain" : fmt::format("{}", length);
}

nlohmann::ordered_json run_json(const bench::SpeculativeRun& run) {
  return {{"draft_length", length_name(run.draft_length)},
          {"tokens_per_second", run.tokens_per_second},
          {"min_tokens_per_second", run.min_tokens_per_second},
          {"max_tokens_per_second", run.max_tokens_per_second},
          {"times_plain", run.times_plain},
          {"steady_times_plain", run.steady_times_plain},
          {"tokens_per_round", run.tokens_per_round},
          {"mean_length", run.mean_length}};
}

void print_costs(const CostTable& costs) {
  print(
      "\ncosts of passes in milliseconds, as learnt (verify: a pass over so many rows; draft: so "
      "many "
      "tokens)\n{:>5} {:>9} {:>9} {:>12}\n",
      "n", "verify", "draft", "verify/row 1");
  for (std::size_t i = 0; i < costs.verify.size(); ++i) {
    const std::string draft =
        i < costs.draft.size() ? fmt::format("{:.3f}", 1e3 * costs.draft[i]) : "";
    print("{:>5} {:>9.3f} {:>9} {:>12.2f}\n", i + 1, 1e3 * costs.verify[i], draft,
          costs.verify[i] / costs.verify.front());
  }
}

void print_report(const bench::SpeculativeReport& report) {
  print("{:>6} {:>10} {:>21} {:>8} {:>8} {:>12} {:>12}\n", "drafts", "tokens/s", "(min - max)",
        "x plain", "steady", "tokens/round", "drafts/round");
  for (const bench::SpeculativeRun& run : report.runs) {
    print("{:>6} {:>10.2f} {:>21} {:>8.3f} {:>8.3f} {:>12.2f} {:>12.2f}\n",
          length_name(run.draft_length), run.tokens_per_second,
          fmt::format("({:.2f} - {:.2f})", run.min_tokens_per_second, run.max_tokens_per_second),
          run.times_plain, run.steady_times_plain, run.tokens_per_round, run.mean_length);
  }
  print_costs(report.costs);
  print(
      "\nplain decoding reads {:.1f} GB/s of {:.1f} GB/s probed\n"
      "best fixed length: {}; automatic reaches {:.1f}% of it ({:.1f}% as timed) and {:.3f} times "
      "plain\n"
      "outputs {}\n",
      report.plain_gb_per_s, report.probe_gb_per_s, length_name(report.best_fixed().draft_length),
      100.0 * report.automatic().steady_times_plain / report.best_fixed().steady_times_plain,
      100.0 * report.automatic().times_plain / report.best_fixed().times_plain,
      report.automatic().times_plain,
      report.outputs_equal ? "equal the plain one in every run" : "DIFFER from the plain one");
}

int speculative_bench(SpeculativeFlags& flags) {
  auto engine = open_bench_engine(flags.bench, /*with_drafter=*/true);
  if (!engine) return report(engine.error());
  Result<bench::SpeculativeReport> measured;
  {
    ProgressBar bar("measuring");
    flags.options.on_progress = [&](int done, int total) {
      bar.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
    };
    flags.options.repetitions = flags.bench.options.repetitions;
    flags.options.context = flags.bench.options.context;
    measured = bench::bench_speculative(**engine, flags.options);
  }
  if (!measured) return report(measured.error());
  if (flags.bench.json) {
    nlohmann::ordered_json json = header_json(flags.bench, **engine, "speculative");
    json["acceptance"] = flags.options.survival;
    json["tokens"] = flags.options.tokens;
    for (const bench::SpeculativeRun& run : measured->runs) json["runs"].push_back(run_json(run));
    json["verify_seconds"] = measured->costs.verify;
    json["draft_seconds"] = measured->costs.draft;
    json["probe_gb_per_s"] = measured->probe_gb_per_s;
    json["plain_gb_per_s"] = measured->plain_gb_per_s;
    json["best_fixed"] = length_name(measured->best_fixed().draft_length);
    json["outputs_equal"] = measured->outputs_equal;
    print_json(json);
  } else {
    print_header(flags.bench, **engine, "speculative decoding");
    print_report(*measured);
  }
  return measured->outputs_equal ? kExitOk : kExitFailedCheck;
}

}  // namespace

void add_speculative_bench(CLI::App& bench, int& exit_code) {
  CLI::App* command =
      bench.add_subcommand("speculative", "Drafting with a given acceptance, against plain steps");
  auto flags = std::make_shared<SpeculativeFlags>();
  flags->options.survival = {0.80, 0.66, 0.55, 0.46, 0.39, 0.33, 0.28, 0.24};
  command
      ->add_option("--acceptance", flags->options.survival,
                   "Share of rounds in which the first draft, the first two, ... are accepted "
                   "(default: 0.80,0.66,0.55,0.46,0.39,0.33,0.28,0.24)")
      ->delimiter(',')
      ->type_name("A,B,...");
  command
      ->add_option("--lengths", flags->options.lengths,
                   "Fixed draft lengths to compare with (default: 1 to those of --acceptance)")
      ->delimiter(',')
      ->check(CLI::Range(1, 63))
      ->type_name("N,M,...");
  command->add_option("--tokens", flags->options.tokens, "Tokens of a run (default: 96)")
      ->check(CLI::Range(8, 4096))
      ->type_name("N");
  add_pass_flags(*command, flags->bench);
  add_draft_flags(*command, flags->bench.model);
  flags->bench.options.repetitions = 5;
  command->footer(
      "The drafter runs and costs what it costs; its proposals are replaced by ones that are right "
      "or wrong as --acceptance says.\n"
      "All lengths run side by side, 16 tokens each in turn. tokens/s are what --acceptance says "
      "of the lengths drafted, over the time they took; steady takes the median time of all rounds "
      "of a length.\n"
      "Example:\n  kakeya bench speculative --shape gemma4-26b-a4b --layers 6");
  command->callback([flags, &exit_code] { exit_code = speculative_bench(*flags); });
}

}  // namespace kakeya::cli
