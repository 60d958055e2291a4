// How tokens are chosen from the logits of a pass: for many rows of many sequences in one call of
// Executor::choose(). The rules are those of Sampler, row by row.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/rows.h"
#include "kakeya/logprobs.h"
#include "kakeya/status.h"
#include "kakeya/types.h"
#include "sampling/sampler.h"

namespace kakeya {

// The rows of one sequence, of a plain step or of a block of drafts.
struct SequenceChoice {
  Rows logits = {};       // [1 + drafts, V], overwritten
  Position position = 0;  // of the token behind row 0
  Sampler* sampler = nullptr;
  std::span<const TokenId> drafts = {};  // row i is behind the first i of them
  // The sequence ends with such a token, or with so many more of them.
  std::span<const TokenId> stop_ids = {};
  std::int64_t most = 0;
  // For log-probabilities: memory for one row of logits [V], empty if none are wanted, and how many
  // of the likeliest tokens they name.
  std::span<float> raw_logits = {};
  int top_logprobs = 0;

  // The result: the drafts that the target chose itself, and one more token. The sampler, and its
  // constraint, know of them afterwards.
  std::span<TokenId> chosen = {};  // room for 1 + drafts
  std::int64_t count = 0;
  std::vector<TokenLogprobs>* logprobs = nullptr;  // of the chosen tokens, added if they are wanted
  // kDataLoss for logits that are not finite, kFailedPrecondition if the constraint allows no
  // token; what was chosen before counts.
  Status status = {};
};

// The rows of one sequence's block of drafts.
struct BlockChoice {
  Rows logits = {};             // [drafts, V], of the drafter; overwritten
  Position position = 0;        // of the first draft
  Sampler* sampler = nullptr;   // chooses with the noise that the target's choice will meet
  TokenId never = -1;           // the mask token, which is no text
  std::span<TokenId> out = {};  // what comes of it
};

// Gives rows that lie on a device to the host.
class HostCopies {
 public:
  virtual ~HostCopies() = default;
  // Where host code may read and overwrite them; valid until the next call.
  virtual HostRows download(Rows rows) = 0;
};

// Chooses for one row after the other, each by `choose`, as long as drafts are what was chosen.
void accept_choices(SequenceChoice& choice,
                    const std::function<Result<TokenId>(std::size_t row)>& choose);

// The choice on the host, one row after the other, which says what every implementation gives.
// `logits` are those of the choice.
void choose_on_host(SequenceChoice& choice, HostRows logits);
void choose_on_host(BlockChoice& choice, HostRows logits);
// The token chosen for one row, [V], which is overwritten; the rows before it must have been chosen
// for. For drafts the sampler's end_drafts() follows behind the last row.
Result<TokenId> choose_row(const SequenceChoice& choice, std::size_t row, std::span<float> logits);
TokenId draft_row(const BlockChoice& choice, std::size_t row, std::span<float> logits);
// The largest logits of a row but `never`, as Executor::list_largest() says.
void list_largest_of(std::span<const float> logits, TokenId never, std::span<TokenLogit> out);

}  // namespace kakeya
