#include "sampling/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <exception>
#include <limits>

#include "base/random.h"
#include "base/status.h"

namespace kakeya {
namespace {

Status check_range(const char* name, float value, float low, float high) {
  if (value >= low && value <= high) return {};
  return invalid_argument("SamplingOptions::{} must be from {} to {} but is {}", name, low, high,
                          value);
}

}  // namespace

Status validate_sampling(const SamplingOptions& options, std::int64_t vocab_size) {
  KAKEYA_TRY(check_range("temperature", options.temperature, 0.0F, 100.0F));
  KAKEYA_TRY(check_range("min_p", options.min_p, 0.0F, 1.0F));
  KAKEYA_TRY(check_range("presence_penalty", options.presence_penalty, -100.0F, 100.0F));
  KAKEYA_TRY(check_range("frequency_penalty", options.frequency_penalty, -100.0F, 100.0F));
  KAKEYA_TRY(check_range("repetition_penalty", options.repetition_penalty, 0.01F, 100.0F));
  if (!(options.top_p > 0.0F && options.top_p <= 1.0F)) {
    return invalid_argument("SamplingOptions::top_p must be above 0 and at most 1 but is {}",
                            options.top_p);
  }
  if (options.top_k < 0) {
    return invalid_argument("SamplingOptions::top_k must be 0 (off) or more but is {}",
                            options.top_k);
  }
  for (const auto& [id, bias] : options.logit_bias) {
    if (id < 0 || id >= vocab_size) {
      return invalid_argument(
          "SamplingOptions::logit_bias names token {} but the vocabulary has {}", id, vocab_size);
    }
    if (std::isnan(bias))
      return invalid_argument("SamplingOptions::logit_bias of token {} is not a number", id);
  }
  return {};
}

namespace {

// The random words behind the noise of tokens at one position. Four neighbours share a block.
class NoiseWords {
 public:
  NoiseWords(std::uint64_t seed, Position position)
      : seed_(seed), position_(static_cast<std::uint64_t>(position)) {}

  std::uint32_t operator()(TokenId id) {
    const auto token = static_cast<std::uint32_t>(id);
    if (token / 4 != block_) {
      block_ = token / 4;
      words_ = philox(seed_, {static_cast<std::uint32_t>(position_),
                              static_cast<std::uint32_t>(position_ >> 32), block_, 0});
    }
    return words_[token % 4];
  }

 private:
  std::uint64_t seed_;
  std::uint64_t position_;
  std::uint32_t block_ = std::numeric_limits<std::uint32_t>::max();
  std::array<std::uint32_t, 4> words_{};
};

double noise_of(std::uint32_t word) {
  return -std::log(-std::log(unit_interval(word)));
}

// True only if the noise of `word` cannot exceed `threshold`, without logarithms; may be false
// although it cannot. With u = (word + 1/2) / 2^32, noise > t means 1 - u < -log(u) < e^-t <= 2^-k
// for the k below, so the top k bits of the complement of `word` are 0.
bool stays_below(std::uint32_t word, double threshold) {
  constexpr double kBitsPerNat = 1.4426950408889634;
  const double bits = threshold * kBitsPerNat;
  if (!(bits >= 1.0)) return false;
  const int k = bits >= 31.0 ? 31 : static_cast<int>(bits);
  return (~word >> (32 - k)) != 0;
}

}  // namespace

double gumbel_noise(std::uint64_t seed, Position position, TokenId id) {
  return noise_of(NoiseWords(seed, position)(id));
}

namespace {

// The largest value of some neighbours, minus infinity where all are that or NaN, in lanes that the
// compiler turns into vectors.
float largest_of(std::span<const float> logits) {
  constexpr std::size_t kLanes = 16;
  std::array<float, kLanes> lanes;
  lanes.fill(kNever);
  const std::size_t whole = logits.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) {
      lanes[j] = logits[i + j] > lanes[j] ? logits[i + j] : lanes[j];
    }
  }
  float largest = kNever;
  for (const float lane : lanes) largest = std::max(largest, lane);
  for (std::size_t i = whole; i < logits.size(); ++i) {
    if (logits[i] > largest) largest = logits[i];
  }
  return largest;
}

}  // namespace

TokenId argmax(std::span<const float> logits) {
  // The first block that has the largest value, then where it is there: a scalar pass over all of
  // 262,144 logits takes four times as long.
  constexpr std::size_t kBlock = 1024;
  float largest = kNever;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < logits.size(); i += kBlock) {
    const float here = largest_of(logits.subspan(i, std::min(kBlock, logits.size() - i)));
    if (here > largest) {
      largest = here;
      begin = i;
    }
  }
  if (largest == kNever) return 0;  // every value is -inf or NaN: the first token
  while (logits[begin] != largest) ++begin;
  return static_cast<TokenId>(begin);
}

Status check_logits(std::span<const float> logits, Position position) {
  // All bits of the exponent are set in what is infinite or NaN. A sum of floats would be as good,
  // but its order keeps the compiler from using vectors.
  constexpr std::uint32_t kExponent = 0x7F80'0000;
  std::uint32_t poison = 0;
  for (const float logit : logits) {
    const bool is_poison = (std::bit_cast<std::uint32_t>(logit) & kExponent) == kExponent;
    poison |= is_poison ? 1U : 0U;
  }
  if (poison == 0) return {};
  return data_loss(
      "the logits for position {} are not finite: weights or activations overflow in this model",
      position);
}

namespace {

std::uint64_t mask_words(std::uint64_t vocab_size) {
  return (vocab_size + 31) / 32;
}

}  // namespace

std::uint64_t Sampler::bytes(std::int64_t vocab_size) {
  const auto v = static_cast<std::uint64_t>(vocab_size);
  return MemoryBudget::charged_bytes(v * (2 * sizeof(std::int32_t) + sizeof(TokenLogit)) +
                                     mask_words(v) * sizeof(std::uint32_t));
}

Result<Sampler> Sampler::create(std::int64_t vocab_size, MemoryBudget& budget) {
  Sampler sampler;
  KAKEYA_ASSIGN_OR_RETURN(sampler.memory_,
                          budget.allocate(MemoryClass::kLogits, bytes(vocab_size)));
  const auto v = static_cast<std::size_t>(vocab_size);
  auto* counts = sampler.memory_.as<std::int32_t>();
  sampler.seen_ = {counts, v};
  sampler.output_counts_ = {counts + v, v};
  sampler.candidates_ = {reinterpret_cast<TokenLogit*>(counts + 2 * v), v};
  sampler.mask_ = {reinterpret_cast<std::uint32_t*>(counts + 4 * v), mask_words(v)};
  sampler.clear_history();
  return sampler;
}

void Sampler::set_options(const SamplingOptions& options, std::span<const TokenId> suppressed) {
  options_ = options;
  suppressed_.assign(suppressed.begin(), suppressed.end());
}

void Sampler::clear_history() {
  std::fill(seen_.begin(), seen_.end(), 0);
  std::fill(output_counts_.begin(), output_counts_.end(), 0);
}

void Sampler::add_prompt_token(TokenId id) {
  ++seen_[static_cast<std::size_t>(id)];
}

template <typename Call>
bool Sampler::ask(const Call& call) {
  if (!constraint_failure_) return false;
  try {
    return call();
  } catch (const Error& failure) {
    constraint_failure_ = Unexpected(failure);
  } catch (const std::exception& failure) {
    constraint_failure_ =
        error(StatusCode::kInternal, "the constraint threw an exception: {}", failure.what());
  } catch (...) {
    constraint_failure_ = error(StatusCode::kInternal, "the constraint threw an exception");
  }
  return false;
}

Status Sampler::add_output_token(TokenId id) {
  ++seen_[static_cast<std::size_t>(id)];
  ++output_counts_[static_cast<std::size_t>(id)];
  if (constraint_ == nullptr || ask([&] { return constraint_->advance(id); })) return {};
  KAKEYA_TRY(constraint_failure_);
  return error(StatusCode::kFailedPrecondition, "the constraint refuses token {}, which it allowed",
               id);
}

void Sampler::take_back(std::span<const TokenId> ids) {
  for (const TokenId id : ids) {
    --seen_[static_cast<std::size_t>(id)];
    --output_counts_[static_cast<std::size_t>(id)];
  }
  roll_back(std::ssize(ids));
}

void Sampler::roll_back(std::int64_t count) {
  if (constraint_ == nullptr || count == 0) return;
  ask([&] {
    constraint_->roll_back(count);
    return true;
  });
}

// Excluded tokens become kNever before anything is chosen: if all tokens were that low, the best
// one would be forbidden.
Status Sampler::constrain(std::span<float> logits, Position position) {
  KAKEYA_ASSIGN_OR_RETURN(const bool masked, fill_mask());
  if (masked && !apply_mask(logits)) {
    return error(StatusCode::kFailedPrecondition, "the constraint allows no token at position {}",
                 position);
  }
  for (const auto& [id, bias] : options_.logit_bias) {
    if (bias == kNever) logits[static_cast<std::size_t>(id)] = kNever;
  }
  for (const TokenId id : suppressed_) logits[static_cast<std::size_t>(id)] = kNever;
  if (std::ranges::any_of(logits, [](float logit) { return logit > kNever; })) return {};
  return error(
      StatusCode::kFailedPrecondition,
      "nothing is left to choose from at position {}: biases and suppressed tokens exclude "
      "all that is allowed",
      position);
}

Result<bool> Sampler::fill_mask() {
  if (constraint_ == nullptr) return false;
  std::ranges::fill(mask_, 0U);
  const bool masked = ask([&] { return constraint_->fill_mask(mask_); });
  KAKEYA_TRY(constraint_failure_);
  return masked;
}

bool Sampler::apply_mask(std::span<float> logits) const {
  bool any = false;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const bool allowed = is_allowed(i);
    any = any || (allowed && logits[i] > kNever);
    if (!allowed) logits[i] = kNever;
  }
  return any;
}

std::int64_t Sampler::propose(std::span<TokenId> out) {
  if (constraint_ == nullptr) return 0;
  std::int64_t count = 0;
  ask([&] {
    count = constraint_->propose(out);
    return true;
  });
  return std::clamp<std::int64_t>(count, 0, std::ssize(out));
}

std::int64_t Sampler::allowed(std::span<const TokenId> drafts) {
  if (constraint_ == nullptr) return std::ssize(drafts);
  std::int64_t count = 0;
  while (count < std::ssize(drafts) &&
         ask([&] { return constraint_->advance(drafts[static_cast<std::size_t>(count)]); })) {
    ++count;
  }
  roll_back(count);
  return count;
}

void Sampler::apply_bias_and_penalties(std::span<float> logits) const {
  for (const auto& [id, bias] : options_.logit_bias) {
    float& logit = logits[static_cast<std::size_t>(id)];
    if (logit > kNever) logit += bias;  // no bias brings back what is excluded
  }
  for (const TokenId id : suppressed_) logits[static_cast<std::size_t>(id)] = kNever;
  if (!penalises()) return;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (seen_[i] != 0) logits[i] = penalised(i, logits[i]);
  }
}

bool Sampler::penalises() const {
  return options_.repetition_penalty != 1.0F || options_.presence_penalty != 0.0F ||
         options_.frequency_penalty != 0.0F;
}

float Sampler::penalised(std::size_t id, float logit) const {
  logit = logit > 0.0F ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
  if (output_counts_[id] == 0) return logit;
  return logit - (options_.presence_penalty +
                  options_.frequency_penalty * static_cast<float>(output_counts_[id]));
}

void Sampler::apply_temperature(std::span<float> logits) const {
  const float temperature = options_.temperature;
  const float largest = logits[static_cast<std::size_t>(argmax(logits))];
  if (std::isfinite(largest / temperature)) {
    for (float& logit : logits) logit /= temperature;
    return;
  }
  // A tiny temperature, or a bias of infinity: the best are equally likely, nothing else is.
  for (float& logit : logits) {
    logit = logit == largest ? 0.0F : std::min(0.0F, (logit - largest) / temperature);
  }
}

TokenId Sampler::sample(std::span<float> logits, Position position) {
  apply_bias_and_penalties(logits);
  if (options_.temperature == 0.0F) return argmax(logits);
  apply_temperature(logits);
  const std::size_t count = keep_most_likely(logits);
  const TokenId chosen = argmax(logits);
  if (count == 0) return chosen;  // every value is -inf or NaN
  return draw_candidate(count, {chosen, logits[static_cast<std::size_t>(chosen)]}, position);
}

TokenId Sampler::draw_candidate(std::size_t count, TokenLogit likely, Position position) const {
  NoiseWords words(options_.seed, position);
  // With a likely token in hand few others need logarithms.
  TokenId chosen = likely.id;
  double best = likely.logit + noise_of(words(chosen));
  for (std::size_t i = 0; i < count; ++i) {
    const TokenLogit& candidate = candidates_[i];
    const std::uint32_t word = words(candidate.id);
    if (stays_below(word, best - candidate.logit)) continue;
    const double value = candidate.logit + noise_of(word);
    if (value > best || (value == best && candidate.id < chosen)) {
      best = value;
      chosen = candidate.id;
    }
  }
  return chosen;
}

TokenId Sampler::draft(std::span<float> logits, Position position) {
  // Behind a draft that is not allowed nothing is: whatever comes there will be rejected.
  on_path_ = on_path_ && constrain(logits, position).has_value();
  const TokenId id = sample(logits, position);
  take_draft(id);
  return id;
}

void Sampler::take_draft(TokenId id) {
  if (constraint_ == nullptr || !on_path_) return;
  on_path_ = ask([&] { return constraint_->advance(id); });
  if (on_path_) ++drafted_;
}

void Sampler::end_drafts() {
  roll_back(drafted_);
  drafted_ = 0;
  on_path_ = true;
}

}  // namespace kakeya
