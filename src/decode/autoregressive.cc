#include "decode/autoregressive.h"

#include <algorithm>

#include "base/clock.h"
#include "base/status.h"

namespace kakeya {

Status decode_autoregressive(Timeline& timeline,
                             Sampler& sampler,
                             const DecodeRequest& request,
                             const TokenCallback& on_token,
                             GenerateResult& result) {
  const Stopwatch watch;
  result.stop_reason = StopReason::kMaxTokens;
  for (std::int64_t n = 0; n < request.max_tokens; ++n) {
    const auto position = static_cast<Position>(timeline.tokens().size());
    if (position >= timeline.context()) {
      result.stop_reason = StopReason::kContext;
      break;
    }
    if (n > 0) {
      KAKEYA_TRY(timeline.run_pending());
      ++result.rounds;
    }
    const TokenId id = sampler.sample(timeline.logits(), position);
    KAKEYA_TRY(timeline.push({&id, 1}));
    sampler.add_output_token(id);
    result.ids.push_back(id);
    const bool go_on = !on_token || on_token(id);
    if (std::find(request.stop_ids.begin(), request.stop_ids.end(), id) != request.stop_ids.end()) {
      result.stop_reason = StopReason::kStopId;
      break;
    }
    if (!go_on) {
      result.stop_reason = StopReason::kCallback;
      break;
    }
  }
  result.decode_seconds = watch.seconds();
  return {};
}

}  // namespace kakeya
