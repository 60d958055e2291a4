// Speculative decoding: each round drafts a block, the target verifies it in one pass, and the
// tokens that the target itself chose are committed.
//
//   tokens    ... t(C-1) t(C)              t(C) is known and not yet run: the pending token
//   draft     d(1) ... d(n)                guesses for positions C+1 ... C+n
//   verify    one pass over t(C) d(1) ... d(n); row i gives the logits after position C+i
//   commit    row 0's choice; while it equals d(i), row i's choice; the last one is pending next
//   rollback  rows that were not committed do not count; the next round overwrites them
//
// The output is that of decode_autoregressive, token for token: row i is computed from the same
// tokens by kernels that give a row the same bits whatever else is in the pass, the choice at a
// position is a function of its logits, the seed and the position, and a choice is committed only
// if all tokens before it in the pass were the committed ones. docs/speculation.md has the argument
// and names the test of each step.
#pragma once

#include "decode/draft_source.h"
#include "decode/length_policy.h"
#include "decode/sampler.h"
#include "decode/timeline.h"
#include "decode/token_stream.h"
#include "kakeya/session.h"

namespace kakeya {

struct SpeculativeOptions {
  std::int64_t draft_length = kAutoDraftLength;
  // The reference way to verify: one pass a row, as long as rows agree. The same output, slower.
  bool one_row_passes = false;
};

// As decode_autoregressive. `policy` is asked with kAutoDraftLength, and told of every round; null
// with a fixed length only.
Status decode_speculative(Timeline& timeline,
                          Sampler& sampler,
                          DraftSource& source,
                          LengthPolicy* policy,
                          const SpeculativeOptions& options,
                          const DecodeRequest& request,
                          const TokenCallback& on_token,
                          GenerateResult& result);

}  // namespace kakeya
