#include "eval/kv/kv_times.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/median.h"
#include "base/status.h"
#include "eval/report/report_claims.h"

namespace kakeya::eval {
namespace {

constexpr std::int64_t kSamples = 5;
constexpr double kSampleSeconds = 0.2;  // twice what a sample has to take: first passes are slower
constexpr std::int64_t kMostSteps = 256;
constexpr std::int64_t kFirstSteps = 4;  // before the samples, which say how many a sample has

// One mode's session, and how far it went on behind the text.
struct TimedMode {
  std::unique_ptr<Timeline> timeline;
  std::size_t next = 0;  // of the text, from its beginning again
};

// Seconds of so many passes of one token each.
Result<double> decode_on(TimedMode& mode,
                         std::span<const TokenId> text,
                         std::int64_t steps,
                         std::span<float> logits) {
  const Stopwatch watch;
  for (std::int64_t i = 0; i < steps; ++i) {
    const auto token = text.subspan(mode.next++ % text.size(), 1);
    KAKEYA_TRY(mode.timeline->forward(
        token, {.logits = {logits.data(), 1, static_cast<std::int64_t>(logits.size())}}));
  }
  return watch.seconds();
}

Result<TimedMode> prefill_mode(EngineImpl& engine,
                               const KvMode& mode,
                               std::span<const TokenId> text,
                               std::int64_t most_steps,
                               const KvEvalOptions& options) {
  SessionOptions session = mode.session;
  session.context = std::ssize(text) + kFirstSteps + kSamples * most_steps;
  session.max_rows = std::min(options.chunk, std::ssize(text));
  TimedMode timed;
  KAKEYA_ASSIGN_OR_RETURN(
      timed.timeline,
      engine.create_timeline(session, 1, find_projection(options, mode), mode.comparison));
  for (std::span<const TokenId> rest = text; !rest.empty();) {
    const auto rows =
        std::min<std::size_t>(rest.size(), static_cast<std::size_t>(session.max_rows));
    KAKEYA_TRY(timed.timeline->forward(rest.first(rows), {}));
    rest = rest.subspan(rows);
  }
  return timed;
}

}  // namespace

double KvLengthTimes::ratio(std::size_t mode) const {
  return median(ratios(modes[mode].seconds, modes.front().seconds));
}

Result<KvLengthTimes> measure_kv_times(EngineImpl& engine,
                                       std::span<const KvMode> modes,
                                       std::span<const TokenId> text,
                                       const KvEvalOptions& options) {
  const std::int64_t room = engine.max_context() - std::ssize(text) - kFirstSteps;
  const std::int64_t most_steps = std::min(kMostSteps, room / kSamples);
  if (most_steps < kFirstSteps) {
    return invalid_argument("times: expected at most {} tokens for this model, got {}",
                            engine.max_context() - kFirstSteps * (kSamples + 1), std::ssize(text));
  }
  KvLengthTimes times{.length = std::ssize(text), .steps = kFirstSteps};
  std::vector<float> logits(static_cast<std::size_t>(engine.vocab_size()));
  std::vector<TimedMode> timed;
  for (const KvMode& mode : modes) {
    auto ready = prefill_mode(engine, mode, text, most_steps, options);
    if (!ready) return Unexpected(ready.error().with_context(mode.name));
    timed.push_back(std::move(ready).value());
    times.modes.push_back({.mode = mode.name});
    if (options.on_progress) options.on_progress(std::ssize(timed), std::ssize(modes));
  }
  for (TimedMode& mode : timed) {
    KAKEYA_ASSIGN_OR_RETURN(const double seconds, decode_on(mode, text, kFirstSteps, logits));
    if (&mode != timed.data()) continue;
    const double steps = std::ceil(kSampleSeconds * kFirstSteps / seconds);
    times.steps = std::clamp(static_cast<std::int64_t>(steps), kFirstSteps, most_steps);
  }
  for (std::int64_t sample = 0; sample < kSamples; ++sample) {
    for (std::size_t i = 0; i < timed.size(); ++i) {
      const auto seconds = decode_on(timed[i], text, times.steps, logits);
      if (!seconds) return Unexpected(seconds.error().with_context(modes[i].name));
      times.modes[i].seconds.push_back(*seconds);
    }
  }
  return times;
}

}  // namespace kakeya::eval
