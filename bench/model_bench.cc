#include "bench/model_bench.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/clock.h"
#include "base/median.h"
#include "base/random.h"
#include "base/status.h"
#include "bench/read_probe.h"
#include "decode/pass.h"
#include "formats/model_tensors.h"

namespace kakeya::bench {
namespace {

// Random tokens, so that routing differs from row to row as it does in text.
std::vector<TokenId> random_ids(SequenceRng& rng, std::int64_t count, std::int64_t vocab_size) {
  std::vector<TokenId> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<TokenId>(rng.below(static_cast<std::uint64_t>(vocab_size))));
  }
  return ids;
}

// Measures passes over one timeline of an engine.
class PassBench {
 public:
  static Result<PassBench> create(EngineImpl& engine,
                                  const ModelBenchOptions& options,
                                  std::int64_t max_rows) {
    const std::int64_t room = options.steps * options.repetitions + max_rows;
    KAKEYA_ASSIGN_OR_RETURN(
        auto timeline, engine.create_timeline(
                           {.context = options.context + room, .max_rows = max_rows}, max_rows));
    KAKEYA_ASSIGN_OR_RETURN(const ParameterCount parameters, parameter_count(engine.config()));
    PassBench bench(engine, std::move(timeline), parameters);
    KAKEYA_TRY(
        bench.timeline_->push(random_ids(bench.rng_, options.context, engine.config().vocab_size)));
    KAKEYA_TRY(bench.timeline_->run_pending());
    return bench;
  }

  // Runs one pass of `rows` random rows as decoding does and returns its seconds: the logits of the
  // last `logit_rows` stay where the backend has them. With `roll_back` the cache is as before.
  Result<double> pass(std::int64_t rows, std::int64_t logit_rows, bool roll_back) {
    const ModelConfig& config = engine_.config();
    const std::vector<TokenId> ids = random_ids(rng_, rows, config.vocab_size);
    const Position before = timeline_->position();
    const std::uint64_t bytes_before = timeline_->bytes_read();
    KAKEYA_TRY(timeline_->push(ids));
    double seconds = 0.0;
    {
      Pass pass(timeline_->workspace());
      const Stopwatch watch;
      KAKEYA_TRY(pass.add(*timeline_, ids, {}, logit_rows));
      KAKEYA_TRY(pass.run());
      timeline_->commit(rows);
      seconds = watch.seconds();
    }
    bytes_ = static_cast<double>(timeline_->bytes_read() - bytes_before);
    count_experts(rows);
    if (roll_back) KAKEYA_TRY(timeline_->truncate(before));
    return seconds;
  }

  double probe() { return probe_.measure(); }

  // The bytes that the last pass read: every weight once, of experts the routed ones; cached rows.
  double pass_bytes() const { return bytes_; }

  // Multiply-adds of the weights, times two; attention is left out (a few percent here).
  double pass_gflop(std::int64_t rows, std::int64_t logit_rows) const {
    const ModelConfig& config = engine_.config();
    const double head = static_cast<double>(config.vocab_size * config.hidden_size);
    const double body = static_cast<double>(parameters_.touched_per_token) - head;
    return 2e-9 * (body * static_cast<double>(rows) + head * static_cast<double>(logit_rows));
  }

  double distinct_experts() const { return expert_counts_.empty() ? 0.0 : median(expert_counts_); }
  void forget_experts() { expert_counts_.clear(); }

 private:
  PassBench(EngineImpl& engine, std::unique_ptr<Timeline> timeline, ParameterCount parameters)
      : engine_(engine),
        timeline_(std::move(timeline)),
        parameters_(parameters),
        probe_(engine.backend()) {}

  void count_experts(std::int64_t rows) {
    const auto routing = timeline_->last_routing(rows);
    if (routing.empty()) return;
    const std::set<std::int32_t> distinct(routing.begin(), routing.end());
    expert_counts_.push_back(static_cast<double>(distinct.size()));
  }

  EngineImpl& engine_;
  std::unique_ptr<Timeline> timeline_;
  ParameterCount parameters_;
  ReadProbe probe_;
  std::vector<double> expert_counts_;
  double bytes_ = 0.0;
  SequenceRng rng_{7};
};

// Collects the repetitions of one kind of pass.
struct PassSamples {
  std::vector<double> seconds;
  std::vector<double> probes;
  std::vector<double> experts;

  void add(double pass_seconds, double probe_before, double probe_after, double distinct) {
    seconds.push_back(pass_seconds);
    probes.push_back(0.5 * (probe_before + probe_after));
    experts.push_back(distinct);
  }
};

PassResult summarise(const PassSamples& samples, std::int64_t rows, double bytes, double gflop) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < samples.seconds.size(); ++i) {
    ratios.push_back(100.0 * bytes * 1e-9 / samples.seconds[i] / samples.probes[i]);
  }
  return {.rows = rows,
          .seconds = median(samples.seconds),
          .min_seconds = *std::min_element(samples.seconds.begin(), samples.seconds.end()),
          .max_seconds = *std::max_element(samples.seconds.begin(), samples.seconds.end()),
          .bytes = bytes,
          .probe_gb_per_s = median(samples.probes),
          .percent_of_probe = median(ratios),
          .gflop = gflop,
          .distinct_experts = median(samples.experts),
          .sample_seconds = samples.seconds,
          .sample_probes = samples.probes};
}

void progress(const ModelBenchOptions& options, int done) {
  if (options.on_progress) options.on_progress(done, options.repetitions);
}

}  // namespace

Result<PassResult> bench_decode(EngineImpl& engine, const ModelBenchOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(PassBench bench, PassBench::create(engine, options, 64));
  KAKEYA_TRY(bench.pass(1, 1, true));  // warm up
  PassSamples samples;
  for (int r = 0; r < options.repetitions; ++r) {
    const double before = bench.probe();
    std::vector<double> seconds;
    for (std::int64_t s = 0; s < options.steps; ++s) {
      KAKEYA_ASSIGN_OR_RETURN(const double step, bench.pass(1, 1, false));
      seconds.push_back(step);
    }
    samples.add(median(seconds), before, bench.probe(), bench.distinct_experts());
    progress(options, r + 1);
  }
  return summarise(samples, 1, bench.pass_bytes(), bench.pass_gflop(1, 1));
}

Result<std::vector<PassResult>> bench_verify(EngineImpl& engine, const ModelBenchOptions& options) {
  const auto& sizes = options.verify_rows;
  const std::int64_t most = *std::max_element(sizes.begin(), sizes.end());
  KAKEYA_ASSIGN_OR_RETURN(PassBench bench,
                          PassBench::create(engine, options, std::max<std::int64_t>(most, 64)));
  std::vector<PassSamples> samples(sizes.size());
  std::vector<double> bytes(sizes.size());
  for (int r = -1; r < options.repetitions; ++r) {  // the first round warms up
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const double before = bench.probe();
      bench.forget_experts();
      std::vector<double> seconds;
      for (std::int64_t s = 0; s < std::max<std::int64_t>(2, options.steps / 2); ++s) {
        KAKEYA_ASSIGN_OR_RETURN(const double step, bench.pass(sizes[i], sizes[i], true));
        seconds.push_back(step);
      }
      if (r < 0) continue;
      bytes[i] = bench.pass_bytes();
      samples[i].add(median(seconds), before, bench.probe(), bench.distinct_experts());
    }
    progress(options, r + 1);
  }
  std::vector<PassResult> results;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    results.push_back(
        summarise(samples[i], sizes[i], bytes[i], bench.pass_gflop(sizes[i], sizes[i])));
  }
  return results;
}

Result<PassResult> bench_prefill(EngineImpl& engine, const ModelBenchOptions& options) {
  ModelBenchOptions from_empty = options;
  from_empty.context = 1;
  KAKEYA_ASSIGN_OR_RETURN(PassBench bench, PassBench::create(engine, from_empty, options.rows));
  KAKEYA_TRY(bench.pass(options.rows, 1, true));  // warm up
  PassSamples samples;
  for (int r = 0; r < options.repetitions; ++r) {
    const double before = bench.probe();
    KAKEYA_ASSIGN_OR_RETURN(const double seconds, bench.pass(options.rows, 1, true));
    samples.add(seconds, before, bench.probe(), bench.distinct_experts());
    progress(options, r + 1);
  }
  return summarise(samples, options.rows, bench.pass_bytes(), bench.pass_gflop(options.rows, 1));
}

Result<OperationsResult> bench_operations(EngineImpl& engine,
                                          TimedBackend& timed,
                                          const ModelBenchOptions& options) {
  const bool roll_back = options.rows > 1;
  KAKEYA_ASSIGN_OR_RETURN(
      PassBench bench,
      PassBench::create(engine, options, std::max<std::int64_t>(options.rows, 64)));
  KAKEYA_TRY(bench.pass(options.rows, options.rows, true));  // warm up
  timed.reset();
  PassSamples samples;
  for (int r = 0; r < options.repetitions; ++r) {
    const double before = bench.probe();
    double seconds = 0.0;
    for (std::int64_t s = 0; s < options.steps; ++s) {
      KAKEYA_ASSIGN_OR_RETURN(const double step, bench.pass(options.rows, options.rows, roll_back));
      seconds += step;
    }
    samples.add(seconds / static_cast<double>(options.steps), before, bench.probe(),
                bench.distinct_experts());
    progress(options, r + 1);
  }
  OperationsResult result;
  result.pass = summarise(samples, options.rows, bench.pass_bytes(),
                          bench.pass_gflop(options.rows, options.rows));
  // The mean over all passes, as the operations' times are.
  result.pass.seconds = std::accumulate(samples.seconds.begin(), samples.seconds.end(), 0.0) /
                        static_cast<double>(samples.seconds.size());
  const double passes = static_cast<double>(options.steps) * options.repetitions;
  result.operations = timed.times();
  for (OperationTimes& operation : result.operations) {
    operation.seconds /= passes;
    operation.bytes /= passes;
    operation.calls = static_cast<std::int64_t>(static_cast<double>(operation.calls) / passes);
  }
  return result;
}

}  // namespace kakeya::bench
