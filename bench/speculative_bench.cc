#include "speculative_bench.h"

#include <algorithm>
#include <numeric>

#include "backend/cpu/probe.h"
#include "base/random.h"
#include "base/status.h"
#include "scripted_drafts.h"

namespace kakeya::bench {
namespace {

constexpr double kProbeSeconds = 0.15;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

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

// One session that is taken back to its prompt after every run.
class SpeculativeBench {
 public:
  static Result<std::unique_ptr<SpeculativeBench>> create(EngineImpl& engine,
                                                          const SpeculativeBenchOptions& options) {
    std::unique_ptr<SpeculativeBench> bench(new SpeculativeBench(engine, options));
    const SessionOptions session{
        .context = options.context + options.tokens + DrafterConfig::kMaxBlockSize,
        .max_rows = std::max<std::int64_t>(512, options.tokens + DrafterConfig::kMaxBlockSize)};
    KAKEYA_ASSIGN_OR_RETURN(bench->session_,
                            engine.create_session(session, [&](DraftSource& source) {
                              return std::make_unique<ScriptedDrafts>(source, bench->script_);
                            }));
    SequenceRng rng(7);
    std::vector<TokenId> prompt;
    for (std::int64_t i = 0; i < options.context; ++i) {
      prompt.push_back(
          static_cast<TokenId>(rng.below(static_cast<std::uint64_t>(engine.config().vocab_size))));
    }
    KAKEYA_TRY(bench->session_->append(prompt));
    bench->script_.tokens = prompt;
    KAKEYA_ASSIGN_OR_RETURN(const GenerateResult plain, bench->generate(0));
    bench->script_.tokens.insert(bench->script_.tokens.end(), plain.ids.begin(), plain.ids.end());
    bench->plain_ids_ = plain.ids;
    return bench;
  }

  Result<GenerateResult> generate(std::int64_t draft_length) {
    // Greedy with every token at most once: random weights would repeat one token for ever, and
    // equal tokens route to equal experts.
    KAKEYA_ASSIGN_OR_RETURN(GenerateResult result,
                            session_->generate({.max_tokens = options_.tokens,
                                                .sampling = {.presence_penalty = 100.0F},
                                                .draft_length = draft_length,
                                                .ignore_model_stop_ids = true}));
    KAKEYA_TRY(session_->truncate(options_.context));
    return result;
  }

  void set_luck(std::uint64_t luck) { script_.luck = luck; }
  bool is_plain_output(const GenerateResult& result) const { return result.ids == plain_ids_; }

 private:
  SpeculativeBench(EngineImpl& engine, const SpeculativeBenchOptions& options) : options_(options) {
    script_.survival = options.survival;
    script_.vocab_size = engine.config().vocab_size;
  }

  const SpeculativeBenchOptions& options_;
  DraftScript script_;
  std::unique_ptr<Session> session_;
  std::vector<TokenId> plain_ids_;
};

double rate_of(const GenerateResult& result) {
  return static_cast<double>(result.ids.size() - 1) / result.decode_seconds;
}

struct Samples {
  std::vector<double> tokens_per_second;
  std::vector<double> times_plain;
  std::int64_t rounds = 0;
  std::int64_t committed = 0;
  std::int64_t drafted = 0;
  double bytes = 0.0;
  double seconds = 0.0;

  void add(const GenerateResult& result, double plain_rate) {
    tokens_per_second.push_back(rate_of(result));
    times_plain.push_back(rate_of(result) / plain_rate);
    rounds += static_cast<std::int64_t>(result.rounds.size());
    drafted += result.drafted;
    seconds += result.decode_seconds;
    for (const RoundRecord& round : result.rounds) {
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
    return a.times_plain < b.times_plain;
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

  KAKEYA_ASSIGN_OR_RETURN(const auto bench, SpeculativeBench::create(engine, options));
  KAKEYA_TRY(bench->generate(kAutoDraftLength));  // measures costs, learns the acceptance
  ThreadPool pool({.num_threads = engine.num_threads(), .pin = true});
  SpeculativeReport report;
  std::vector<Samples> samples(lengths.size());
  std::vector<double> probes;
  for (int r = 0; r < options.repetitions; ++r) {
    bench->set_luck(static_cast<std::uint64_t>(r) + 2);
    probes.push_back(cpu::measure_read_bandwidth(pool, kProbeSeconds));
    // A plain run before and after, and every other repetition backwards: what else a shared
    // machine does drifts over minutes.
    std::vector<GenerateResult> results(lengths.size());
    for (std::size_t k = 0; k < lengths.size(); ++k) {
      const std::size_t i = r % 2 == 0 || k == 0 ? k : lengths.size() - k;
      KAKEYA_ASSIGN_OR_RETURN(results[i], bench->generate(lengths[i]));
      report.outputs_equal = report.outputs_equal && bench->is_plain_output(results[i]);
    }
    KAKEYA_ASSIGN_OR_RETURN(const GenerateResult again, bench->generate(0));
    const double plain_rate = 0.5 * (rate_of(results[0]) + rate_of(again));
    for (std::size_t i = 0; i < lengths.size(); ++i) samples[i].add(results[i], plain_rate);
    if (options.on_progress) options.on_progress(r + 1, options.repetitions);
  }
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    report.runs.push_back(samples[i].summary(lengths[i]));
  }
  report.probe_gb_per_s = median(probes);
  report.plain_gb_per_s = 1e-9 * samples.front().bytes / samples.front().seconds;
  report.costs = engine.draft_costs().value_or(MeasuredCosts{});
  return report;
}

}  // namespace kakeya::bench
