// Turns logits into a token: greedy, or sampled with the usual filters. The randomness of a token
// is a function of (seed, absolute position, token id) alone, so the sampled stream does not depend
// on chunking, batching or speculation.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "base/memory_budget.h"
#include "base/token_mask.h"
#include "kakeya/constraint.h"
#include "kakeya/options.h"
#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya {

// Checks ranges: temperature >= 0 and finite, 0 < top_p <= 1, 0 <= min_p <= 1, penalties finite,
// biased ids within the vocabulary. Errors: kInvalidArgument, naming the option.
Status validate_sampling(const SamplingOptions& options, std::int64_t vocab_size);

// Gumbel noise for token `id` at `position`: -log(-log(u)), u uniform from philox(seed).
double gumbel_noise(std::uint64_t seed, Position position, TokenId id);

// The logit of what must not be drawn.
inline constexpr float kNever = -std::numeric_limits<float>::infinity();

struct TokenLogit {
  TokenId id;
  float logit;
};
// Larger; of equal ones the lower id. No function, which algorithms would call through a pointer.
struct IsBetter {
  bool operator()(const TokenLogit& a, const TokenLogit& b) const {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  }
};

// The largest logits of a row, for whoever need not see the others.
struct LargestLogits {
  std::span<const TokenLogit> listed;  // finite; each id once, in any order
  float others;                        // no other is larger; minus infinity: there are no others
};

// One a session. Not thread-safe. After create() nothing allocates but set_options().
class Sampler {
 public:
  static Result<Sampler> create(std::int64_t vocab_size, MemoryBudget& budget);
  // The bytes that create() will charge.
  static std::uint64_t bytes(std::int64_t vocab_size);
  std::uint64_t bytes() const { return memory_.size(); }

  // Sets what follows; options must have passed validate_sampling. `suppressed` ids are never
  // drawn.
  void set_options(const SamplingOptions& options, std::span<const TokenId> suppressed);

  // Sets the constraint that allows tokens from now on; null: all are allowed. It must outlive its
  // use.
  void set_constraint(Constraint* constraint) {
    constraint_ = constraint;
    constraint_failure_ = {};
  }
  // Rules out what the constraint does not allow for `position`, what is suppressed and what a bias
  // of minus infinity excludes. Errors: kFailedPrecondition if that is everything, kInternal if the
  // constraint has thrown an exception: it is not asked again.
  Status constrain(std::span<float> logits, Position position);
  // Constraint::pace(); kAtOnce without one.
  Constraint::Pace pace() const {
    return constraint_ == nullptr ? Constraint::Pace::kAtOnce : constraint_->pace();
  }
  // Constraint::propose(); 0 without a constraint.
  std::int64_t propose(std::span<TokenId> out);
  // How many of the first drafts the constraint allows.
  std::int64_t allowed(std::span<const TokenId> drafts);

  // Token counts behind the penalties. Prompt tokens count for repetition only.
  void clear_history();
  void add_prompt_token(TokenId id);
  // Tells the constraint, too. Errors: kFailedPrecondition if that refuses it, kInternal if it
  // throws an exception.
  Status add_output_token(TokenId id);
  // Undoes the last calls of add_output_token(), which were for these.
  void take_back(std::span<const TokenId> ids);

  // True if the largest logits of a row mostly are enough to choose from.
  bool chooses_from_largest() const;

  // The token for `position`, given its logits [V], which are overwritten.
  //
  // Order: logit bias, penalties, temperature, top-k, top-p, min-p, then the largest of
  // logit / temperature + Gumbel noise among the survivors (exactly a draw from their softmax).
  // Ties: the lower id.
  TokenId sample(std::span<float> logits, Position position);
  // The token that constrain() and sample() give for the whole row. None where only the whole row
  // can tell; then nothing has changed.
  std::optional<TokenId> sample(const LargestLogits& largest, Position position);

  // A drafter's token for `position` from its own logits [V], which are overwritten: as sample(),
  // with the very noise that the target will meet, so that similar logits mostly give the same
  // token. The constraint takes the token for the next one of the text, until end_drafts().
  TokenId draft(std::span<float> logits, Position position);
  // Drafts from the largest logits; none where only the whole row can tell, as for sample().
  std::optional<TokenId> draft(const LargestLogits& largest, Position position);
  void end_drafts();

 private:
  // A token that far below the largest logit cannot be drawn: Gumbel noise of 32-bit uniforms lies
  // within (-3.2, 22.9).
  static constexpr float kReachOfNoise = 26.1F;

  // The answer of the constraint, if it has not thrown yet; false if it throws. Every call goes
  // through here: many sequences are chosen for together, and one's exception must not end the
  // others.
  template <typename Call>
  bool ask(const Call& call);
  // Rolls back the constraint alone.
  void roll_back(std::int64_t count);
  // Asks the constraint what it allows; false: everything, then mask_ does not count.
  Result<bool> fill_mask();
  bool is_allowed(std::size_t id) const { return kakeya::is_allowed(mask_, id); }
  // Applies the mask; true if any token is left.
  bool apply_mask(std::span<float> logits) const;
  void apply_bias_and_penalties(std::span<float> logits) const;
  bool penalises() const;
  // The logit of a token that was seen.
  float penalised(std::size_t id, float logit) const;
  // Divides by the temperature, which is above 0; nothing becomes NaN or +inf.
  void apply_temperature(std::span<float> logits) const;
  std::size_t keep_most_likely(std::span<const float> logits);
  // The number of the first `count` candidates that top-k, top-p and min-p leave; `best`: their
  // largest.
  std::size_t filter(std::size_t count, float best);
  std::size_t top_candidates(std::size_t available, std::size_t wanted);
  std::size_t apply_top_p(std::size_t count, float best);
  // The one of the first `count` candidates that the noise of `position` chooses; `best`: a likely
  // one of them.
  TokenId draw_candidate(std::size_t count, TokenLogit best, Position position) const;
  std::optional<TokenId> choose(const LargestLogits& largest, Position position, bool constrained);
  // Fills candidates_ with what is allowed of those listed, with bias and penalties.
  std::size_t keep_allowed(std::span<const TokenLogit> listed, bool masked);
  float biased(TokenId id, float logit) const;
  // The first `count` candidates are all that top-k, top-p and min-p can leave of a row whose other
  // logits are at most `others`.
  bool covers_filters(std::size_t count, float best, float others) const;
  // Tells the constraint of a draft.
  void take_draft(TokenId id);

  SamplingOptions options_;
  std::vector<TokenId> suppressed_;
  Buffer memory_;
  std::span<std::int32_t> seen_;           // [V] occurrences in prompt and output
  std::span<std::int32_t> output_counts_;  // [V] occurrences in the output
  std::span<TokenLogit> candidates_;       // [V]
  std::span<std::uint32_t> mask_;          // bits of [V]
  Constraint* constraint_ = nullptr;
  Status constraint_failure_;  // what it has thrown
  std::int64_t drafted_ = 0;   // tokens that the constraint was told of since end_drafts()
  bool on_path_ = true;        // no draft since then was forbidden
};

// The id of the largest logit; ties: the lower id.
TokenId argmax(std::span<const float> logits);

// Errors: kDataLoss, naming `position`, if a logit of the target is NaN or infinite: no choice
// among such logits means anything.
Status check_logits(std::span<const float> logits, Position position);

}  // namespace kakeya
