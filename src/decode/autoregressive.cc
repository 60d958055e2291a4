#include "decode/autoregressive.h"

#include "base/clock.h"
#include "base/status.h"

namespace kakeya {

Status decode_autoregressive(Timeline& timeline,
                             Sampler& sampler,
                             const DecodeRequest& request,
                             const TokenCallback& on_token,
                             GenerateResult& result) {
  const Stopwatch watch;
  TokenStream stream(request, sampler, on_token, result);
  result.stop_reason = StopReason::kMaxTokens;
  bool first = true;
  while (stream.remaining() > 0) {
    const auto position = static_cast<Position>(timeline.tokens().size());
    if (position >= timeline.context()) {
      result.stop_reason = StopReason::kContext;
      break;
    }
    RoundRecord round{.start_seconds = watch.seconds(), .committed = 1};
    const std::uint64_t bytes_before = timeline.bytes_read();
    if (!first && timeline.recomputes()) timeline.forget();
    if (!first) KAKEYA_TRY(timeline.run_pending());
    KAKEYA_TRY(check_logits(timeline.logits(), position));
    const TokenId id = sampler.sample(timeline.logits(), position);
    KAKEYA_TRY(timeline.push({&id, 1}));
    if (!first) {  // the first token comes out of the prefill's logits
      round.verify_seconds = watch.seconds() - round.start_seconds;
      round.bytes = timeline.bytes_read() - bytes_before;
      result.rounds.push_back(round);
    }
    first = false;
    if (!stream.emit(id)) break;
  }
  result.decode_seconds = watch.seconds();
  return {};
}

}  // namespace kakeya
