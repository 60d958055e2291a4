#include "bench/speculative_bench.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <thread>

#include "base/median.h"
#include "base/random.h"
#include "base/status.h"
#include "bench/read_probe.h"
#include "bench/scripted_drafts.h"
#include "bench/turns.h"

namespace kakeya::bench {
namespace {

// The tokens of a turn.
constexpr std::int64_t kTurnTokens = 16;

Status check_curve(const std::vector<double>& survival) {
  double before = 1.0;
  for (const double share : survival) {
    if (!(share >= 0.0 && share <= before)) {
      return invalid_argument(
          "--acceptance must be shares from 0 to 1 that never rise (the first draft, the first "
          "two, ...) but has {} after {}",
          share, before);
    }
    before = share;
  }
  if (survival.empty()) return invalid_argument("--acceptance names no share");
  return {};
}

// A session for each draft length, taken back to its prompt after every run.
class SpeculativeBench {
 public:
  static Result<std::unique_ptr<SpeculativeBench>> create(EngineImpl& engine,
                                                          const SpeculativeBenchOptions& options,
                                                          std::span<const std::int64_t> lengths) {
    std::unique_ptr<SpeculativeBench> bench(new SpeculativeBench(engine, options));
    SequenceRng rng(7);
    for (std::int64_t i = 0; i < options.context; ++i) {
      bench->script_.tokens.push_back(
          static_cast<TokenId>(rng.below(static_cast<std::uint64_t>(engine.config().vocab_size))));
    }
    for (const std::int64_t length : lengths) KAKEYA_TRY(bench->add_session(engine, length));
    KAKEYA_ASSIGN_OR_RETURN(bench->plain_, bench->generate(0, {}));
    const std::vector<TokenId>& plain = bench->plain_.ids;
    bench->script_.tokens.insert(bench->script_.tokens.end(), plain.begin(), plain.end());
    return bench;
  }

  Result<GenerateResult> generate(std::size_t run, const TokenCallback& on_token) {
    // Greedy with every token at most once: random weights would repeat one token for ever, and
    // equal tokens route to equal experts.
    Session& session = *runs_[run].session;
    KAKEYA_ASSIGN_OR_RETURN(GenerateResult result,
                            session.generate({.max_tokens = options_.tokens,
                                              .sampling = {.presence_penalty = 100.0F},
                                              .draft_length = runs_[run].draft_length,
                                              .ignore_model_stop_ids = true},
                                             on_token));
    KAKEYA_TRY(session.truncate(options_.context));
    return result;
  }

  // All lengths side by side, some rounds each in turn; decode_seconds is the time of the own
  // rounds. Behind a turn of another one caches are cold, and backends prepare other passes.
  Result<std::vector<GenerateResult>> generate_all(std::uint64_t luck) {
    script_.luck = luck;
    Turns turns(runs_.size());
    std::vector<Result<GenerateResult>> results(runs_.size());
    std::vector<std::thread> threads;
    for (std::size_t run = 0; run < runs_.size(); ++run) {
      threads.emplace_back([&, run] {
        turns.begin(run);
        std::int64_t tokens = 0;
        results[run] = generate(run, [&](const TokenEvent&) {
          turns.pass(run, tokens++ / kTurnTokens);
          return true;
        });
        turns.end(run);
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<GenerateResult> values;
    for (std::size_t run = 0; run < runs_.size(); ++run) {
      KAKEYA_ASSIGN_OR_RETURN(values.emplace_back(), std::move(results[run]));
      values.back().decode_seconds = turns.seconds(run);
    }
    return values;
  }

  bool is_plain_output(const GenerateResult& result) const { return result.ids == plain_.ids; }

 private:
  struct Run {
    std::int64_t draft_length;
    std::unique_ptr<Session> session;
  };

  SpeculativeBench(EngineImpl& engine, const SpeculativeBenchOptions& options) : options_(options) {
    script_.survival = options.survival;
    script_.vocab_size = engine.config().vocab_size;
  }

  Status add_session(EngineImpl& engine, std::int64_t draft_length) {
    const SessionOptions session{
        .context = options_.context + options_.tokens + DrafterConfig::kMaxBlockSize,
        .max_rows = std::max<std::int64_t>(512, options_.tokens + DrafterConfig::kMaxBlockSize)};
    Run& run = runs_.emplace_back(Run{draft_length, nullptr});
    const auto scripted = [&](DraftSource& source) {
      return std::make_unique<ScriptedDrafts>(source, script_);
    };
    KAKEYA_ASSIGN_OR_RETURN(run.session, engine.create_session(session, {.wrapper = scripted}));
    return run.session->append(script_.tokens);
  }

  const SpeculativeBenchOptions& options_;
  DraftScript script_;
  std::vector<Run> runs_;
  GenerateResult plain_;
};

// The tokens that a round of `drafted` drafts gives by the curve. Those of real rounds vary by a
// third from run to run of a hundred, by luck that says nothing about their lengths.
double expected_tokens(std::int32_t drafted, const std::vector<double>& survival) {
  const auto depths = std::min<std::ptrdiff_t>(drafted, std::ssize(survival));
  return std::accumulate(survival.begin(), survival.begin() + depths, 1.0);
}

double rate_of(const GenerateResult& result, const std::vector<double>& survival) {
  double tokens = 0.0;
  for (const RoundRecord& round : result.rounds) tokens += expected_tokens(round.drafted, survival);
  return tokens / result.decode_seconds;
}

// The median time of a round by the tokens it drafted, over all runs: other work on the machine
// slows some rounds down by half, and there are too few of each run for that to even out.
class RoundTimes {
 public:
  void add(const std::vector<RoundRecord>& rounds) {
    for (const RoundRecord& round : rounds) {
      times_[round.drafted].push_back(round.draft_seconds + round.verify_seconds);
    }
  }

  // Tokens a second of rounds of these lengths.
  double rate(const std::map<std::int32_t, std::int64_t>& rounds_by_length,
              const std::vector<double>& survival) const {
    double tokens = 0.0;
    double seconds = 0.0;
    for (const auto& [drafted, count] : rounds_by_length) {
      tokens += static_cast<double>(count) * expected_tokens(drafted, survival);
      seconds += static_cast<double>(count) * median(times_.at(drafted));
    }
    return tokens / seconds;
  }

 private:
  std::map<std::int32_t, std::vector<double>> times_;
};

struct RunSamples {
  std::vector<double> tokens_per_second;
  std::vector<double> times_plain;
  std::map<std::int32_t, std::int64_t> rounds_by_length;
  std::int64_t rounds = 0;
  std::int64_t committed = 0;
  std::int64_t drafted = 0;
  double bytes = 0.0;
  double seconds = 0.0;

  void add(const GenerateResult& result, double rate, double plain_rate) {
    tokens_per_second.push_back(rate);
    times_plain.push_back(rate / plain_rate);
    rounds += static_cast<std::int64_t>(result.rounds.size());
    drafted += result.drafted;
    seconds += result.decode_seconds;
    for (const RoundRecord& round : result.rounds) {
      ++rounds_by_length[round.drafted];
      committed += round.committed;
      bytes += static_cast<double>(round.bytes);
    }
  }

  SpeculativeRun summary(std::int64_t draft_length) const {
    const auto [low, high] =
        std::minmax_element(tokens_per_second.begin(), tokens_per_second.end());
    return {.draft_length = draft_length,
            .tokens_per_second = median(tokens_per_second),
            .min_tokens_per_second = *low,
            .max_tokens_per_second = *high,
            .times_plain = median(times_plain),
            .tokens_per_round = static_cast<double>(committed) / static_cast<double>(rounds),
            .mean_length = static_cast<double>(drafted) / static_cast<double>(rounds)};
  }
};

}  // namespace

const SpeculativeRun& SpeculativeReport::best_fixed() const {
  return *std::max_element(runs.begin(), runs.end() - 1, [](const auto& a, const auto& b) {
    return a.steady_times_plain < b.steady_times_plain;
  });
}

Result<SpeculativeReport> bench_speculative(EngineImpl& engine,
                                            const SpeculativeBenchOptions& options) {
  KAKEYA_TRY(check_curve(options.survival));
  if (engine.drafter() == nullptr) {
    return error(StatusCode::kFailedPrecondition, "there is no drafter; name one with --draft DIR");
  }
  std::vector<std::int64_t> lengths = options.lengths;
  if (lengths.empty()) {
    lengths.resize(options.survival.size());
    std::iota(lengths.begin(), lengths.end(), 1);
  }
  lengths.insert(lengths.begin(), 0);
  lengths.push_back(kAutoDraftLength);

  KAKEYA_ASSIGN_OR_RETURN(const auto bench, SpeculativeBench::create(engine, options, lengths));
  // Learns costs and acceptance.
  KAKEYA_TRY(bench->generate(lengths.size() - 1, {}));
  ReadProbe probe(engine.backend());
  SpeculativeReport report;
  RoundTimes times;
  std::vector<RunSamples> samples(lengths.size());
  std::vector<double> probes;
  for (int r = 0; r < options.repetitions; ++r) {
    probes.push_back(probe.measure());
    KAKEYA_ASSIGN_OR_RETURN(const std::vector<GenerateResult> results,
                            bench->generate_all(static_cast<std::uint64_t>(r) + 2));
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      report.outputs_equal = report.outputs_equal && bench->is_plain_output(results[i]);
      times.add(results[i].rounds);
      samples[i].add(results[i], rate_of(results[i], options.survival),
                     rate_of(results.front(), options.survival));
    }
    if (options.on_progress) options.on_progress(r + 1, options.repetitions);
  }
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    report.runs.push_back(samples[i].summary(lengths[i]));
    report.runs.back().steady_times_plain =
        times.rate(samples[i].rounds_by_length, options.survival) /
        times.rate(samples.front().rounds_by_length, options.survival);
  }
  report.probe_gb_per_s = median(probes);
  report.plain_gb_per_s = 1e-9 * samples.front().bytes / samples.front().seconds;
  report.costs = engine.cost_table().value_or(CostTable{});
  return report;
}

}  // namespace kakeya::bench
