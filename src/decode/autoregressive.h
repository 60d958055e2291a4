// Plain decoding: one forward pass a token. What speculative decoding must reproduce.
#pragma once

#include "decode/sampler.h"
#include "decode/timeline.h"
#include "decode/token_stream.h"
#include "kakeya/session.h"

namespace kakeya {

// Continues `timeline`, whose tokens were run (it has logits), and appends to result.ids and
// result.rounds, which must have room for max_tokens: nothing is allocated. The last token stays
// pending. Sets stop_reason and decode_seconds.
Status decode_autoregressive(Timeline& timeline,
                             Sampler& sampler,
                             const DecodeRequest& request,
                             const TokenCallback& on_token,
                             GenerateResult& result);

}  // namespace kakeya
