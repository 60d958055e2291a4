// Plain decoding: one forward pass a token.
#pragma once

#include <span>

#include "decode/sampler.h"
#include "decode/timeline.h"
#include "kakeya/session.h"

namespace kakeya {

struct DecodeRequest {
  std::int64_t max_tokens = 0;
  std::span<const TokenId> stop_ids;
};

// Continues `timeline`, whose tokens were run (it has logits), and appends to result.ids, which
// must have room for max_tokens: nothing is allocated. The last token stays pending. Sets
// stop_reason, rounds and decode_seconds.
Status decode_autoregressive(Timeline& timeline,
                             Sampler& sampler,
                             const DecodeRequest& request,
                             const TokenCallback& on_token,
                             GenerateResult& result);

}  // namespace kakeya
