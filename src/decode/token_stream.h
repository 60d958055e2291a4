// What both decoding loops do with a chosen token: give it to the caller and see whether it is the
// last one.
#pragma once

#include <cstdint>
#include <span>

#include "decode/sampler.h"
#include "kakeya/session.h"

namespace kakeya {

struct DecodeRequest {
  std::int64_t max_tokens = 0;
  std::span<const TokenId> stop_ids;
};

class TokenStream {
 public:
  // Everything is the caller's and must outlive the stream. result.ids needs room for max_tokens:
  // nothing is allocated.
  TokenStream(const DecodeRequest& request,
              Sampler& sampler,
              const TokenCallback& on_token,
              GenerateResult& result)
      : request_(request), sampler_(sampler), on_token_(on_token), result_(result) {}

  // Tokens that may still be emitted.
  std::int64_t remaining() const {
    return request_.max_tokens - static_cast<std::int64_t>(result_.ids.size());
  }

  // Returns whether decoding goes on; if not, result.stop_reason says why.
  bool emit(TokenId id);

  // What the caller's callback has taken so far, which is no cost of a round.
  double callback_seconds() const { return callback_seconds_; }

 private:
  const DecodeRequest& request_;
  Sampler& sampler_;
  const TokenCallback& on_token_;
  GenerateResult& result_;
  double callback_seconds_ = 0.0;
};

}  // namespace kakeya
