// kakeya bench batch: sessions that decode together, against one alone.
#include <fmt/format.h>

#include <memory>

#include "base/memory_budget.h"
#include "bench/batch_bench.h"
#include "bench/bench_flags.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/terminal.h"

namespace kakeya::cli {
namespace {

struct BatchFlags {
  BenchFlags bench;
  bench::BatchBenchOptions options;
};

nlohmann::ordered_json batch_json(const BatchFlags& flags,
                                  const EngineImpl& engine,
                                  const std::vector<bench::BatchResult>& results) {
  nlohmann::ordered_json json = header_json(flags.bench, engine, "batch");
  json["context"] = flags.options.context;
  json["tokens"] = flags.options.tokens;
  json["draft_length"] = flags.options.draft_length;
  json["arriving"] = flags.options.arriving;
  json["results"] = nlohmann::ordered_json::array();
  for (const bench::BatchResult& r : results) {
    json["results"].push_back({{"sessions", r.sessions},
                               {"tokens_per_second", r.tokens_per_second},
                               {"min_tokens_per_second", r.min_tokens_per_second},
                               {"max_tokens_per_second", r.max_tokens_per_second},
                               {"ratio", r.ratio},
                               {"plain_ratio", r.plain_ratio},
                               {"min_plain_ratio", r.min_plain_ratio},
                               {"max_plain_ratio", r.max_plain_ratio},
                               {"gap_seconds", r.gap_seconds},
                               {"gap_seconds_p99", r.gap_seconds_p99},
                               {"gap_seconds_max", r.gap_seconds_max},
                               {"step_seconds", r.step_seconds},
                               {"chunk_times", r.chunk_times},
                               {"step_bytes", r.step_bytes},
                               {"probe_gb_per_s", r.probe_gb_per_s},
                               {"percent_of_probe", r.percent_of_probe},
                               {"session_bytes", r.session_bytes},
                               {"samples", r.samples}});
  }
  return json;
}

void print_batch(const BatchFlags& flags,
                 const EngineImpl& engine,
                 const std::vector<bench::BatchResult>& results) {
  print_header(flags.bench, engine, "batch");
  print("{} tokens behind prompts of {}; {}\n", flags.options.tokens, flags.options.context,
        flags.options.draft_length == 0 ? "no drafts"
        : flags.options.draft_length < 0
            ? "drafts as long as pays"
            : fmt::format("{} drafts a round", flags.options.draft_length));
  if (flags.options.arriving > 0) {
    print("measured while a prompt of {} tokens runs beside them\n", flags.options.arriving);
  }
  print("{:>8} {:>9} {:>19} {:>7} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>11}\n", "sessions",
        "tokens/s", "(least - most)", "times", "each", "gap ms", "p99 ms", "most ms", "step ms",
        "MB/step", "%probe", "sessions take");
  for (const bench::BatchResult& r : results) {
    print(
        "{:>8} {:>9.1f} {:>19} {:>7.2f} {:>9.1f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.1f} "
        "{:>6.0f}% {:>11}\n",
        r.sessions, r.tokens_per_second,
        fmt::format("({:.1f} - {:.1f})", r.min_tokens_per_second, r.max_tokens_per_second), r.ratio,
        r.tokens_per_second / static_cast<double>(r.sessions), 1e3 * r.gap_seconds,
        1e3 * r.gap_seconds_p99, 1e3 * r.gap_seconds_max, 1e3 * r.step_seconds, 1e-6 * r.step_bytes,
        r.percent_of_probe, format_bytes(r.session_bytes));
    if (r.plain_ratio > 0.0) {
      print("{:>8} {:.2f} ({:.2f} - {:.2f}) times as many tokens a second as without drafts\n", "",
            r.plain_ratio, r.min_plain_ratio, r.max_plain_ratio);
    }
    if (r.chunk_times > 0.0) {
      print("{:>8} passes take at most {:.2f} times those of the prompt's chunks alone\n", "",
            r.chunk_times);
    }
  }
}

int batch_bench(BatchFlags& flags) {
  auto engine = open_bench_engine(flags.bench, flags.options.draft_length != 0);
  if (!engine) return report(engine.error());
  flags.options.repetitions = flags.bench.options.repetitions;
  flags.options.context = flags.bench.options.context;
  const auto results = [&] {
    ProgressBar bar("decoding together");
    flags.options.on_progress = [&](int done, int total) {
      bar.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
    };
    return bench::bench_batch(**engine, flags.options);
  }();
  if (!results) return report(results.error());
  if (flags.bench.json) {
    print("{}\n", batch_json(flags, **engine, *results).dump(2));
  } else {
    print_batch(flags, **engine, *results);
  }
  return 0;
}

}  // namespace

void add_batch_bench(CLI::App& bench, int& exit_code) {
  CLI::App* command =
      bench.add_subcommand("batch", "Sessions that decode together, against one alone");
  auto flags = std::make_shared<BatchFlags>();
  flags->bench.options.repetitions = 5;
  command
      ->add_option("--sessions", flags->options.sessions,
                   "How many decode together (default: 1,2,4,8,16,32,64)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command
      ->add_option("--tokens", flags->options.tokens,
                   "Tokens of each session that are measured (default: 32)")
      ->check(CLI::Range(1, 100000))
      ->type_name("N");
  command
      ->add_option("--draft-length", flags->options.draft_length,
                   "Drafts of a round; -1: as many as pay (default: 0)")
      ->check(CLI::Range(-1, 63))
      ->type_name("N");
  command->add_flag("--compare-plain", flags->options.compare_plain,
                    "Without drafts, too, in turns, and how much the drafts gain");
  command
      ->add_option("--arriving", flags->options.arriving,
                   "A prompt of N tokens comes while they decode, and is what is measured")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  add_pass_flags(*command, flags->bench);
  command->callback([flags, &exit_code] { exit_code = batch_bench(*flags); });
}

}  // namespace kakeya::cli
