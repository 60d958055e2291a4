#include "runtime/session_impl.h"

#include <algorithm>

#include "base/clock.h"
#include "base/status.h"
#include "decode/autoregressive.h"

namespace kakeya {

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kStopId:
      return "stop_id";
    case StopReason::kMaxTokens:
      return "max_tokens";
    case StopReason::kContext:
      return "context";
    case StopReason::kCallback:
      return "callback";
  }
  return "?";
}

Status SessionImpl::append(std::span<const TokenId> ids) {
  return timeline_->push(ids);
}

Result<std::int64_t> SessionImpl::sync(std::span<const TokenId> ids) {
  KAKEYA_TRY(timeline_->check(ids));
  const std::span<const TokenId> held = timeline_->tokens();
  const auto [mismatch, unused] = std::mismatch(held.begin(), held.end(), ids.begin(), ids.end());
  auto common = static_cast<Position>(mismatch - held.begin());
  // A ring that no longer holds the window before `common` has to start again.
  if (!timeline_->rewind(common)) {
    KAKEYA_TRY(timeline_->rewind(0));
    common = 0;
  }
  KAKEYA_TRY(timeline_->push(ids.subspan(static_cast<std::size_t>(common))));
  return std::min<std::int64_t>(common, timeline_->position());
}

Status SessionImpl::prefill(const PrefillProgress& progress) {
  return timeline_->run_pending(0, progress);
}

Status SessionImpl::truncate(Position length) {
  return timeline_->rewind(length);
}

Result<GenerateResult> SessionImpl::generate(const GenerateOptions& options,
                                             const TokenCallback& on_token) {
  KAKEYA_TRY(validate_sampling(options.sampling, timeline_->decoder().config().vocab_size));
  if (options.max_tokens < 0) {
    return invalid_argument("max_tokens must be 0 or more but is {}", options.max_tokens);
  }
  if (timeline_->tokens().empty()) {
    return error(StatusCode::kFailedPrecondition, "there is nothing to continue: append tokens");
  }
  std::vector<TokenId> stop_ids = options.stop_ids;
  if (!options.ignore_model_stop_ids) {
    stop_ids.insert(stop_ids.end(), model_stop_ids_.begin(), model_stop_ids_.end());
  }
  sampler_.set_options(options.sampling, suppressed_);
  sampler_.clear_history();
  for (const TokenId id : timeline_->tokens()) sampler_.add_prompt_token(id);

  GenerateResult result;
  const auto room = timeline_->context() - static_cast<Position>(timeline_->tokens().size());
  result.ids.reserve(static_cast<std::size_t>(std::min(options.max_tokens, room)));
  const Stopwatch prefill_watch;
  result.prefill_tokens =
      static_cast<std::int64_t>(timeline_->tokens().size()) - timeline_->position();
  KAKEYA_TRY(timeline_->run_pending());
  result.prefill_seconds = prefill_watch.seconds();
  KAKEYA_TRY(decode_autoregressive(*timeline_, sampler_,
                                   {.max_tokens = options.max_tokens, .stop_ids = stop_ids},
                                   on_token, result));
  return result;
}

Footprint SessionImpl::footprint() const {
  Footprint footprint = timeline_->footprint();
  footprint.reserved_bytes(MemoryClass::kLogits) += sampler_.bytes();
  footprint.live_bytes(MemoryClass::kLogits) += sampler_.bytes();
  return footprint;
}

}  // namespace kakeya
