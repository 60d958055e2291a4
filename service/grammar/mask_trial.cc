#include "service/grammar/mask_trial.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace kakeya::service {
namespace {

constexpr int kWalks = 4;
constexpr int kSteps = 64;
constexpr int kWays = 3;                // that are looked at in each step
constexpr double kTrialSeconds = 0.15;  // of all walks
// Ordinary grammars look at each token of the vocabulary, as behind a string's limit: 0.3 us each.
constexpr double kLeastTriedSeconds = 0.02;
constexpr double kTriedSecondsPerToken = 1e-6;
// The first mask fills caches, and a disturbed one counts for nothing: the quickest is judged.
constexpr int kTries = 3;

using Mask = std::vector<std::uint32_t>;

std::int64_t count_of(const Mask& mask) {
  const auto add = [](std::int64_t sum, std::uint32_t word) { return sum + std::popcount(word); };
  return std::accumulate(mask.begin(), mask.end(), std::int64_t{0}, add);
}

// An id that the mask allows, by chance; nothing if there is none.
std::optional<TokenId> any_allowed(const Mask& mask, std::mt19937& random) {
  const std::size_t begin = random() % mask.size();
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const std::size_t word = (begin + i) % mask.size();
    if (mask[word] == 0) continue;
    const auto turned = static_cast<int>(random() % 32);
    const int bit = (std::countr_zero(std::rotr(mask[word], turned)) + turned) % 32;
    return static_cast<TokenId>(word * 32) + bit;
  }
  return {};
}

class Walk {
 public:
  Walk(std::unique_ptr<Constraint> constraint,
       std::int64_t vocab_size,
       double most_seconds,
       std::uint32_t seed)
      : constraint_(std::move(constraint)),
        most_seconds_(most_seconds),
        mask_(static_cast<std::size_t>(vocab_size + 31) / 32),
        random_(seed) {}

  bool is_slow() const { return is_slow_; }
  // Looks at what may come; false if nothing may.
  bool look() {
    is_free_ = !fill();
    return is_free_ || count_of(mask_) > 0;
  }

  // Goes on by the one of some tokens behind which most may come; false at an end, or where all is
  // allowed.
  bool go_on() {
    if (is_free_) return false;
    std::optional<TokenId> best;
    std::int64_t most = -1;
    const Mask before = mask_;
    for (int way = 0; way < kWays && !is_slow_; ++way) {
      const auto id = any_allowed(before, random_);
      if (!id || !advance(*id)) continue;
      const std::int64_t count = fill() ? count_of(mask_) : 0;
      if (count > most) best = id;
      most = std::max(most, count);
      constraint_->roll_back(1);
    }
    return best && !is_slow_ && advance(*best) && look();
  }

 private:
  bool is_quick(const ThreadTime& time) const { return time.seconds() <= most_seconds_; }

  bool advance(TokenId id) {
    for (int tried = 1;; ++tried) {
      const ThreadTime time;
      if (!constraint_->advance(id)) return false;
      if (is_quick(time)) return true;
      is_slow_ = is_slow_ || tried == kTries;
      if (is_slow_) return true;
      constraint_->roll_back(1);
    }
  }

  // False if everything may come, as behind an end.
  bool fill() {
    for (int tried = 1;; ++tried) {
      std::ranges::fill(mask_, 0U);
      const ThreadTime time;
      const bool masks = constraint_->fill_mask(mask_);
      if (is_quick(time)) return masks;
      is_slow_ = is_slow_ || tried == kTries;
      if (is_slow_) return masks;
    }
  }

  const std::unique_ptr<Constraint> constraint_;
  const double most_seconds_;
  Mask mask_;
  std::mt19937 random_;
  bool is_slow_ = false;
  bool is_free_ = false;
};

}  // namespace

Status try_masks(const std::function<std::unique_ptr<Constraint>()>& constrain,
                 std::int64_t vocab_size) {
  const ThreadTime time;
  const double most_seconds =
      std::max(kLeastTriedSeconds, kTriedSecondsPerToken * static_cast<double>(vocab_size));
  for (std::uint32_t seed = 1; seed <= kWalks; ++seed) {
    Walk walk(constrain(), vocab_size, most_seconds, seed);
    if (!walk.look() && !walk.is_slow()) {
      return error(StatusCode::kInvalidArgument, "grammar: it allows no token to begin");
    }
    for (int step = 0; step < kSteps && walk.go_on() && time.seconds() < kTrialSeconds; ++step) {
    }
    if (walk.is_slow()) {
      return error(StatusCode::kInvalidArgument,
                   "grammar: expected masks of at most {} ms, got one that takes longer: repeat by "
                   "rules that end in themselves, without choices in ( )* or repetitions of the "
                   "same characters behind each other",
                   static_cast<int>(most_seconds * 1e3));
    }
  }
  return {};
}

}  // namespace kakeya::service
