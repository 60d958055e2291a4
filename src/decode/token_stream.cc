#include "decode/token_stream.h"

#include <algorithm>

#include "base/clock.h"

namespace kakeya {

bool TokenStream::emit(TokenId id) {
  sampler_.add_output_token(id);
  result_.ids.push_back(id);
  bool go_on = true;
  if (on_token_) {
    const Stopwatch watch;
    go_on = on_token_(id);
    callback_seconds_ += watch.seconds();
  }
  const auto& stop_ids = request_.stop_ids;
  if (std::find(stop_ids.begin(), stop_ids.end(), id) != stop_ids.end()) {
    result_.stop_reason = StopReason::kStopId;
    return false;
  }
  if (!go_on) {
    result_.stop_reason = StopReason::kCallback;
    return false;
  }
  if (remaining() == 0) {
    result_.stop_reason = StopReason::kMaxTokens;
    return false;
  }
  return true;
}

}  // namespace kakeya
