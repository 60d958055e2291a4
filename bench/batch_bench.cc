#include "bench/batch_bench.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/median.h"
#include "base/random.h"
#include "base/status.h"
#include "bench/read_probe.h"
#include "kakeya/scheduler.h"

namespace kakeya::bench {
namespace {

// One repetition with one number of sessions.
struct BatchSample {
  double tokens_per_second = 0.0;
  double plain_ratio = 0.0;
  std::vector<double> gaps;
  std::vector<double> steps;        // seconds
  std::vector<double> chunk_times;  // of the prompt that arrives, by its chunks
  double step_bytes = 0.0;
  double step_seconds = 0.0;  // the mean
  double probe_gb_per_s = 0.0;
  std::uint64_t session_bytes = 0;
};

class BatchBench {
 public:
  BatchBench(EngineImpl& engine, const BatchBenchOptions& options)
      : engine_(engine), options_(options), probe_(engine.backend()) {}

  // With options.compare_plain the sessions decode without drafts first.
  Result<BatchSample> measure(std::int64_t sessions) {
    if (!options_.compare_plain) return measure(sessions, options_.draft_length);
    KAKEYA_ASSIGN_OR_RETURN(const BatchSample plain, measure(sessions, 0));
    KAKEYA_ASSIGN_OR_RETURN(BatchSample sample, measure(sessions, options_.draft_length));
    sample.plain_ratio = sample.tokens_per_second / plain.tokens_per_second;
    return sample;
  }

 private:
  Result<BatchSample> measure(std::int64_t sessions, std::int64_t draft_length) {
    draft_length_ = draft_length;
    BatchSample sample;
    sample.probe_gb_per_s = probe_.measure();
    failed_ = {};  // what the end of the scheduler before this one did to its sessions
    std::vector<double> alone;
    if (options_.arriving > 0) {
      KAKEYA_ASSIGN_OR_RETURN(alone, run_alone());
    }
    const std::uint64_t idle = engine_.footprint().total_reserved();
    last_token_.assign(static_cast<std::size_t>(sessions), 0.0);
    begun_ = 0;
    KAKEYA_ASSIGN_OR_RETURN(const auto scheduler, start(sessions, sample));
    // Prompts first, to the last one: what is measured is decoding alone.
    bool goes_on = true;
    while (goes_on && begun_ < sessions) {
      KAKEYA_ASSIGN_OR_RETURN(goes_on, scheduler->step());
      KAKEYA_TRY(failed_);
    }
    if (scheduler->statistics().running < sessions) {
      return error(StatusCode::kInternal, "of {} sessions some ended before all had begun",
                   sessions);
    }
    const SchedulerStatistics before = scheduler->statistics();
    sample.session_bytes = engine_.footprint().total_reserved() - idle;
    if (options_.arriving > 0) KAKEYA_TRY(add_arriving(*scheduler));
    sample.gaps.clear();
    const Stopwatch watch;
    // Nobody has ended yet, so that every pass is of all sessions.
    const auto goes_on_measuring = [&] {
      const SchedulerStatistics now = scheduler->statistics();
      if (now.running + now.waiting < sessions) return false;
      return options_.arriving > 0 ? !arrived_
                                   : now.tokens - before.tokens < sessions * options_.tokens;
    };
    while (goes_on_measuring()) {
      const Stopwatch step_watch;
      KAKEYA_TRY(step(*scheduler));
      sample.steps.push_back(step_watch.seconds());
    }
    const double seconds = watch.seconds();
    const SchedulerStatistics after = scheduler->statistics();
    if (options_.arriving > 0 && (!arrived_ || after.running < sessions)) {
      return error(StatusCode::kInternal, "some sessions ended before the prompt had run");
    }
    // Where there are more sessions than rows, prompts wait for their turn, and chunks differ.
    if (alone.size() == sample.steps.size()) {
      std::transform(sample.steps.begin(), sample.steps.end(), alone.begin(),
                     std::back_inserter(sample.chunk_times), std::divides());
    }
    const auto passes = static_cast<double>(after.passes - before.passes);
    sample.tokens_per_second = static_cast<double>(after.tokens - before.tokens) / seconds;
    sample.step_bytes = static_cast<double>(after.bytes - before.bytes) / passes;
    sample.step_seconds = seconds / passes;
    return sample;
  }

  Result<std::unique_ptr<Scheduler>> start(std::int64_t sessions, BatchSample& sample) {
    KAKEYA_ASSIGN_OR_RETURN(
        auto scheduler,
        engine_.create_scheduler({.max_sequences = sessions + (options_.arriving > 0 ? 1 : 0),
                                  .max_logit_rows = std::max<std::int64_t>(128, sessions * 16)}));
    for (std::int64_t i = 0; i < sessions; ++i) {
      Request request{.prompt = random_prompt(options_.context)};
      request.generate = {.max_tokens = longest_answer(sessions),
                          .draft_length = draft_length_,
                          .ignore_model_stop_ids = true};
      request.session = engine_.session_options();
      request.session->context = options_.context + request.generate.max_tokens;
      request.on_token = [this, &sample, i](const TokenEvent&) {
        double& last = last_token_[static_cast<std::size_t>(i)];
        const double now = clock_.seconds();
        if (last > 0.0) sample.gaps.push_back(now - last);
        if (last == 0.0) ++begun_;
        last = now;
        return true;
      };
      request.on_end = [this](RequestId, const RequestResult& result) {
        if (!result.status && failed_) failed_ = result.status;
      };
      KAKEYA_TRY(scheduler->add(std::move(request)));
    }
    return scheduler;
  }

  // Seconds of each chunk's pass of a prompt like the one that arrives, with nobody beside it.
  Result<std::vector<double>> run_alone() {
    const SchedulerOptions defaults;
    KAKEYA_ASSIGN_OR_RETURN(
        const auto scheduler,
        engine_.create_scheduler({.max_sequences = 1, .max_rows = defaults.prefill_rows}));
    KAKEYA_TRY(add_arriving(*scheduler));
    std::vector<double> seconds;
    while (!arrived_) {
      const Stopwatch watch;
      KAKEYA_TRY(step(*scheduler));
      seconds.push_back(watch.seconds());
    }
    return seconds;
  }

  Status add_arriving(Scheduler& scheduler) {
    arrived_ = false;
    Request request{.prompt = random_prompt(options_.arriving)};
    request.generate = {.max_tokens = 1, .ignore_model_stop_ids = true};
    request.session = engine_.session_options();
    request.session->context = options_.arriving + 1;
    request.on_end = [this](RequestId, const RequestResult& result) {
      arrived_ = true;
      if (!result.status && failed_) failed_ = result.status;
    };
    KAKEYA_TRY(scheduler.add(std::move(request)));
    return {};
  }

  std::vector<TokenId> random_prompt(std::int64_t tokens) {
    const auto vocab = static_cast<std::uint64_t>(engine_.config().vocab_size);
    std::vector<TokenId> prompt;
    for (std::int64_t t = 0; t < tokens; ++t) {
      prompt.push_back(static_cast<TokenId>(random_.below(vocab)));
    }
    return prompt;
  }

  // Some more than are measured, for drafts take some sessions ahead of others; and what the first
  // ones generate while the prompts of the others are run.
  std::int64_t longest_answer(std::int64_t sessions) const {
    constexpr std::int64_t kMostDrafts = 15;
    const std::int64_t drafts =
        draft_length_ < 0 ? kMostDrafts : std::min(draft_length_, kMostDrafts);
    const std::int64_t prompts = sessions * options_.context + options_.arriving;
    const std::int64_t passes = prompts / SchedulerOptions().prefill_rows + 2;
    return 2 * options_.tokens + 32 + passes * (1 + drafts);
  }

  Status step(Scheduler& scheduler) {
    KAKEYA_TRY(scheduler.step());
    return failed_;
  }

  EngineImpl& engine_;
  const BatchBenchOptions& options_;
  std::int64_t draft_length_ = 0;
  ReadProbe probe_;
  SequenceRng random_{1};
  Stopwatch clock_;
  std::vector<double> last_token_;
  std::int64_t begun_ = 0;  // sessions that have had a token
  bool arrived_ = false;    // the prompt that comes while they decode has run
  Status failed_;
};

template <typename Of>
double median_of(const std::vector<BatchSample>& samples, Of&& of) {
  std::vector<double> values;
  for (const BatchSample& sample : samples) values.push_back(of(sample));
  return median(std::move(values));
}

BatchResult summarise(std::int64_t sessions,
                      const std::vector<BatchSample>& samples,
                      const std::vector<BatchSample>& first) {
  BatchResult result{.sessions = sessions};
  std::vector<double> gaps;
  std::vector<double> steps;
  std::vector<double> ratios;
  std::vector<std::vector<double>> chunks(samples.front().chunk_times.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    result.samples.push_back(samples[i].tokens_per_second);
    ratios.push_back(samples[i].tokens_per_second / first[i].tokens_per_second);
    gaps.insert(gaps.end(), samples[i].gaps.begin(), samples[i].gaps.end());
    steps.insert(steps.end(), samples[i].steps.begin(), samples[i].steps.end());
    for (std::size_t c = 0; c < samples[i].chunk_times.size() && c < chunks.size(); ++c) {
      chunks[c].push_back(samples[i].chunk_times[c]);
    }
  }
  for (std::vector<double>& chunk : chunks) {
    result.chunk_times = std::max(result.chunk_times, median(std::move(chunk)));
  }
  std::sort(gaps.begin(), gaps.end());
  result.tokens_per_second = median(result.samples);
  result.min_tokens_per_second = *std::min_element(result.samples.begin(), result.samples.end());
  result.max_tokens_per_second = *std::max_element(result.samples.begin(), result.samples.end());
  result.ratio = median(ratios);
  const auto plain_ratio = [](const BatchSample& s) { return s.plain_ratio; };
  const auto [least, most] = std::ranges::minmax_element(samples, {}, plain_ratio);
  result.plain_ratio = median_of(samples, plain_ratio);
  result.min_plain_ratio = plain_ratio(*least);
  result.max_plain_ratio = plain_ratio(*most);
  if (!gaps.empty()) {
    result.gap_seconds = gaps[gaps.size() / 2];
    result.gap_seconds_p99 = gaps[gaps.size() * 99 / 100];
    result.gap_seconds_max = gaps.back();
  }
  if (!steps.empty()) result.step_seconds = median(std::move(steps));
  result.step_bytes = median_of(samples, [](const BatchSample& s) { return s.step_bytes; });
  result.probe_gb_per_s = median_of(samples, [](const BatchSample& s) { return s.probe_gb_per_s; });
  result.percent_of_probe = median_of(samples, [](const BatchSample& s) {
    return 1e-7 * s.step_bytes / s.step_seconds / s.probe_gb_per_s;
  });
  result.session_bytes = samples.back().session_bytes;
  return result;
}

}  // namespace

Result<std::vector<BatchResult>> bench_batch(EngineImpl& engine, const BatchBenchOptions& options) {
  BatchBench bench(engine, options);
  const int total = (options.repetitions + 1) * static_cast<int>(options.sessions.size());
  int done = 0;
  std::vector<std::vector<BatchSample>> samples(options.sessions.size());
  // The first round warms up, and makes the workspace as large as it will be.
  for (int repetition = -1; repetition < options.repetitions; ++repetition) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      KAKEYA_ASSIGN_OR_RETURN(BatchSample sample, bench.measure(options.sessions[i]));
      if (repetition >= 0) samples[i].push_back(std::move(sample));
      if (options.on_progress) options.on_progress(++done, total);
    }
  }
  std::vector<BatchResult> results;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    results.push_back(summarise(options.sessions[i], samples[i], samples.front()));
  }
  return results;
}

}  // namespace kakeya::bench
