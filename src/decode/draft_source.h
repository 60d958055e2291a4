// The proposer of speculative decoding: it drafts tokens for the target to verify. Nothing here
// decides what is committed: a source that proposes nonsense costs time and changes no output.
#pragma once

#include <cstdint>
#include <span>

#include "kakeya/session.h"
#include "kakeya/status.h"
#include "kakeya/types.h"
#include "sampling/sampler.h"

namespace kakeya {

class DflashSource;

// The drafts that a source could make next. Kinds differ in acceptance and cost.
struct DraftOffer {
  DraftKind kind = DraftKind::kNone;
  std::int64_t length = 0;        // most tokens it can propose now; 0: none
  bool long_match = false;        // of n-grams: many tokens in a row stood before as they do now
  std::int64_t context_rows = 0;  // of a drafter: rows of its context that it has to make first
};

// A drafter's job for one of several sequences.
struct DraftJob {
  DflashSource* source = nullptr;
  std::span<const TokenId> tokens;  // as of DraftSource::draft
  Sampler* sampler = nullptr;
  std::span<TokenId> out;
};

// The work of a drafter on its contexts, beside the drafts.
struct ContextWork {
  std::int64_t rows = 0;
  double seconds = 0.0;
};

// One a session, one thread at a time. Nothing allocates after creation, but in forked sessions.
class DraftSource {
 public:
  virtual ~DraftSource() = default;

  // The most tokens it ever proposes at once.
  virtual std::int64_t max_length() const = 0;

  // `tokens`: everything known so far, at least one; the proposals are for the positions from
  // tokens.size() on.
  // `sampler` knows the constraint, if there is one.
  virtual DraftOffer offer(std::span<const TokenId> tokens, Sampler& sampler) = 0;

  // Fills `out`, which is not longer than the offer made for the same tokens. A drafter with
  // probabilities chooses by `sampler`, with the noise that the target's choice will meet. Errors:
  // kResourceExhausted in a fork, which allocates when it is first needed; nothing changes then.
  virtual Status draft(std::span<const TokenId> tokens,
                       Sampler& sampler,
                       std::span<TokenId> out) = 0;

  // The drafter that draft() would run for the last offer, so that its passes for several sequences
  // can be one; null where drafting runs none.
  virtual DflashSource* drafter() { return nullptr; }

  // Bytes of weights and cached rows that it has read so far.
  virtual std::uint64_t bytes_read() const { return 0; }
};

}  // namespace kakeya
