#include "decode/speculative.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "formats/drafter_config.h"

namespace kakeya {
namespace {

// The parts of one generation, so that its steps are functions.
struct Generation {
  Timeline& timeline;
  Sampler& sampler;
  DraftSource& source;
  LengthPolicy* policy;
  const SpeculativeOptions& options;
  TokenStream& stream;
  std::array<TokenId, DrafterConfig::kMaxBlockSize> draft_buffer;

  Position position() const { return static_cast<Position>(timeline.tokens().size()); }

  Result<std::span<const TokenId>> draft(DraftOffer offer);
  Result<TokenId> choose(std::span<const TokenId> drafts, std::size_t row, Rows logits);
  Result<bool> verify(std::span<const TokenId> drafts, RoundRecord& round);
};

// Drafts as many tokens as pay, and no more than could be committed.
Result<std::span<const TokenId>> Generation::draft(DraftOffer offer) {
  const std::int64_t room = timeline.context() - position() - 1;
  const std::int64_t most = std::min({offer.length, stream.remaining() - 1, room});
  std::int64_t length = 0;
  if (most > 0) {
    length = options.draft_length == kAutoDraftLength ? policy->choose(offer.lane, most)
                                                      : std::min(options.draft_length, most);
  }
  const std::span<TokenId> drafts(draft_buffer.data(), static_cast<std::size_t>(length));
  if (length > 0) KAKEYA_TRY(source.draft(timeline.tokens(), sampler, drafts));
  return drafts;
}

// The token after the first `row` drafts.
Result<TokenId> Generation::choose(std::span<const TokenId> drafts, std::size_t row, Rows logits) {
  const std::span<float> own(logits.data, static_cast<std::size_t>(logits.width));
  KAKEYA_TRY(check_logits(own, position()));
  if (row == drafts.size()) return sampler.sample(own, position());
  return sampler.verify(own, drafts[row],
                        source.draft_probabilities(static_cast<std::int64_t>(row)), position());
}

// Verifies and commits; returns whether decoding goes on.
Result<bool> Generation::verify(std::span<const TokenId> drafts, RoundRecord& round) {
  Rows logits;
  if (!options.one_row_passes) {
    KAKEYA_ASSIGN_OR_RETURN(logits, timeline.verify(drafts));
  }
  for (std::size_t row = 0; row <= drafts.size(); ++row) {
    if (options.one_row_passes) {
      KAKEYA_ASSIGN_OR_RETURN(logits, timeline.verify({}));
    }
    KAKEYA_ASSIGN_OR_RETURN(const TokenId id, choose(drafts, row, logits));
    timeline.accept(id);
    ++round.committed;
    const bool agreed = row < drafts.size() && id == drafts[row];
    if (agreed) ++round.accepted;
    if (!stream.emit(id)) return false;
    if (!agreed) return true;
    if (!options.one_row_passes) logits.data += logits.width;
  }
  return true;
}

}  // namespace

Status decode_speculative(Timeline& timeline,
                          Sampler& sampler,
                          DraftSource& source,
                          LengthPolicy* policy,
                          const SpeculativeOptions& options,
                          const DecodeRequest& request,
                          const TokenCallback& on_token,
                          GenerateResult& result) {
  KAKEYA_CHECK(policy != nullptr || options.draft_length != kAutoDraftLength);
  const Stopwatch watch;
  TokenStream stream(request, sampler, on_token, result);
  Generation generation{timeline, sampler, source, policy, options, stream, {}};
  const auto bytes_read = [&] { return timeline.bytes_read() + source.bytes_read(); };

  // The first token comes out of the prefill's logits; a full context gives none.
  result.stop_reason = StopReason::kMaxTokens;
  bool go_on = stream.remaining() > 0;
  if (go_on && generation.position() < timeline.context()) {
    KAKEYA_TRY(check_logits(timeline.logits(), generation.position()));
    const TokenId id = sampler.sample(timeline.logits(), generation.position());
    KAKEYA_TRY(timeline.push({&id, 1}));
    go_on = stream.emit(id);
  }
  while (go_on) {
    if (generation.position() >= timeline.context()) {
      result.stop_reason = StopReason::kContext;
      break;
    }
    RoundRecord round{.start_seconds = watch.seconds()};
    const std::uint64_t bytes_before = bytes_read();
    const DraftOffer offer = source.offer(timeline.tokens());
    KAKEYA_ASSIGN_OR_RETURN(const std::span<const TokenId> drafts, generation.draft(offer));
    const double drafted_at = watch.seconds();
    const double callbacks_before = stream.callback_seconds();
    KAKEYA_ASSIGN_OR_RETURN(go_on, generation.verify(drafts, round));
    round.drafted = static_cast<std::int32_t>(drafts.size());
    round.kind = drafts.empty() ? DraftKind::kNone : source.lane_kind(offer.lane);
    round.draft_seconds = drafted_at - round.start_seconds;
    round.verify_seconds =
        watch.seconds() - drafted_at - (stream.callback_seconds() - callbacks_before);
    round.bytes = bytes_read() - bytes_before;
    result.drafted += round.drafted;
    result.accepted += round.accepted;
    result.rounds.push_back(round);
    if (policy != nullptr) policy->observe(offer.lane, round);
  }
  result.decode_seconds = watch.seconds();
  return {};
}

}  // namespace kakeya
