#include "decode/generation.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "decode/pass.h"

namespace kakeya {

Generation::Generation(Timeline& timeline,
                       Sampler& sampler,
                       DraftSource* source,
                       DraftCosts* costs,
                       const DecodeRequest& request,
                       GenerateResult& result)
    : timeline_(timeline),
      sampler_(sampler),
      source_(source),
      costs_(costs),
      request_(request),
      result_(result) {
  if (source != nullptr && request.draft_length == kAutoDraftLength) {
    KAKEYA_CHECK(costs != nullptr);
    policy_.emplace(*costs);
  }
  result_.stop_reason = StopReason::kMaxTokens;
  delivered_ = result_.ids.size();
  done_ = remaining() <= 0;
}

bool Generation::is_stop_id(TokenId id) const {
  return std::find(request_.stop_ids.begin(), request_.stop_ids.end(), id) !=
         request_.stop_ids.end();
}

void Generation::stop(StopReason reason) {
  result_.stop_reason = reason;
  done_ = true;
}

void Generation::add(TokenId id) {
  result_.ids.push_back(id);
  if (is_stop_id(id)) return stop(StopReason::kStopId);
  if (remaining() == 0) stop(StopReason::kMaxTokens);
}

Status Generation::begin(std::span<float> logits) {
  if (done_) return {};
  if (position() >= timeline_.context()) {
    stop(StopReason::kContext);
    return {};
  }
  return push_choice(logits);
}

Status Generation::push_choice(std::span<float> logits) {
  SequenceChoice choice{.position = position(),
                        .sampler = &sampler_,
                        .stop_ids = request_.stop_ids,
                        .most = 1,
                        .raw_logits = request_.raw_logits,
                        .top_logprobs = request_.top_logprobs,
                        .chosen = chosen_,
                        .logprobs = &result_.logprobs};
  choose_on_host(choice, {logits.data(), 1, std::ssize(logits)});
  KAKEYA_TRY(choice.status);
  KAKEYA_TRY(timeline_.push({chosen_.data(), 1}));
  add(chosen_.front());
  return {};
}

bool Generation::begin_round() {
  if (done_) return false;
  if (position() >= timeline_.context()) {
    stop(StopReason::kContext);
    return false;
  }
  round_ = {.start_seconds = watch_.seconds()};
  length_ = 0;
  most_ = 0;
  if (source_ == nullptr) return true;
  offer_ = source_->offer(timeline_.tokens());
  const std::int64_t room = timeline_.context() - position() - 1;
  most_ = std::max<std::int64_t>(0, std::min({offer_.length, remaining() - 1, room}));
  return true;
}

void Generation::plan() {
  plan(policy_ ? policy_->choose(offer_.kind, most_)
               : std::clamp<std::int64_t>(request_.draft_length, 0, most_));
}

RoundChoice Generation::round_choice() {
  return {.policy = policy_ ? &*policy_ : nullptr,
          .kind = offer_.kind,
          .most = most_,
          .length = std::max<std::int64_t>(0, request_.draft_length)};
}

Status Generation::draft() {
  if (length_ == 0) return {};
  KAKEYA_TRY(source_->draft(timeline_.tokens(), sampler_, mutable_drafts()));
  drop_forbidden_drafts();
  return {};
}

// What cannot be accepted need not be verified.
void Generation::drop_forbidden_drafts() {
  length_ = sampler_.allowed(drafts());
}

SequenceChoice Generation::choice(Rows logits) {
  for (std::size_t i = 0; i < drafts().size(); ++i) {
    draft_probabilities_[i] = source_->draft_probabilities(static_cast<std::int64_t>(i));
  }
  return {.logits = logits,
          .position = position(),
          .sampler = &sampler_,
          .drafts = drafts(),
          .draft_probabilities = std::span(draft_probabilities_).first(drafts().size()),
          .stop_ids = request_.stop_ids,
          .most = remaining(),
          .raw_logits = request_.raw_logits,
          .top_logprobs = request_.top_logprobs,
          .chosen = chosen_,
          .logprobs = &result_.logprobs};
}

Status Generation::absorb(const SequenceChoice& choice) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(choice.count); ++i) {
    const TokenId id = choice.chosen[i];
    timeline_.accept(id);
    ++round_.committed;
    if (i < choice.drafts.size() && id == choice.drafts[i]) ++round_.accepted;
    add(id);
  }
  return choice.status;
}

void Generation::end_round(double draft_seconds, double verify_seconds, std::uint64_t bytes) {
  round_.drafted = static_cast<std::int32_t>(length_);
  round_.kind = length_ == 0 ? DraftKind::kNone : offer_.kind;
  round_.draft_seconds = draft_seconds;
  round_.verify_seconds = verify_seconds;
  round_.bytes = bytes;
  result_.drafted += round_.drafted;
  result_.accepted += round_.accepted;
  result_.rounds.push_back(round_);
  if (policy_) policy_->observe(round_);
}

Status Generation::deliver(const TokenCallback& on_token) {
  const bool shows_logprobs = request_.on_logprobs && !request_.raw_logits.empty();
  if (!on_token && !shows_logprobs) {
    delivered_ = result_.ids.size();
    return {};
  }
  while (delivered_ < result_.ids.size()) {
    if (shows_logprobs) request_.on_logprobs(result_.logprobs[delivered_]);
    const TokenId id = result_.ids[delivered_++];
    if (!on_token || on_token(id)) continue;
    const bool last = delivered_ == result_.ids.size();
    if (last && done_ && result_.stop_reason == StopReason::kStopId) return {};
    stop(StopReason::kCallback);
    return drop_undelivered();
  }
  return {};
}

Status Generation::drop_undelivered() {
  const auto behind = static_cast<std::int32_t>(result_.ids.size() - delivered_);
  if (behind == 0) return {};
  // The last token that stays is pending again, as if the round had ended with it.
  KAKEYA_TRY(timeline_.rewind(position() - behind));
  sampler_.take_back(std::span<const TokenId>(result_.ids).subspan(delivered_));
  result_.ids.resize(delivered_);
  if (!request_.raw_logits.empty()) result_.logprobs.resize(delivered_);
  if (result_.rounds.empty()) return {};  // it was the prompt's
  RoundRecord& round = result_.rounds.back();
  round.committed -= behind;
  result_.accepted -= std::max(0, round.accepted - round.committed);
  round.accepted = std::min(round.accepted, round.committed);
  return {};
}

void Generation::finish() {
  result_.decode_seconds = watch_.seconds();
  if (policy_) policy_->end();
}

Status Generation::choose(Pass& pass) {
  Workspace& workspace = timeline_.workspace();
  SequenceChoice chosen = choice(pass.logits(0));
  workspace.executor().choose({&chosen, 1}, workspace);
  return absorb(chosen);
}

Status Generation::verify() {
  Pass pass(timeline_.workspace());
  KAKEYA_TRY(timeline_.check_verify(drafts().size()));
  KAKEYA_TRY(pass.add(timeline_, timeline_.pending(), drafts(), length_ + 1));
  KAKEYA_TRY(pass.run());
  return choose(pass);
}

// All of the text anew, for the token behind it.
Status Generation::run_again() {
  timeline_.forget();
  KAKEYA_TRY(timeline_.run_pending());
  KAKEYA_TRY(push_choice(timeline_.logits()));
  ++round_.committed;
  return {};
}

Status Generation::run_round() {
  const Workspace::Turn turn = timeline_.workspace().take_turn();
  if (!begin_round()) return {};
  plan();
  const std::int64_t planned = length_;
  const auto bytes_read = [&] {
    return timeline_.bytes_read() + (source_ == nullptr ? 0 : source_->bytes_read());
  };
  const std::uint64_t bytes_before = bytes_read();
  KAKEYA_TRY(draft());
  const double drafted_at = watch_.seconds();
  const Status run = timeline_.recomputes() ? run_again() : verify();
  // A round that an error ends has committed what was chosen before it.
  if (!run && round_.committed == 0) return run;
  end_round(drafted_at - round_.start_seconds, watch_.seconds() - drafted_at,
            bytes_read() - bytes_before);
  // Of one pass, that is.
  if (costs_ != nullptr && !timeline_.recomputes()) {
    if (offer_.kind == DraftKind::kDflash) costs_->learn_drafts(planned, round_.draft_seconds);
    costs_->learn(length_ + 1, round_.verify_seconds);
  }
  return run;
}

Status decode(Timeline& timeline,
              Sampler& sampler,
              DraftSource* source,
              DraftCosts* costs,
              const DecodeRequest& request,
              const TokenCallback& on_token,
              GenerateResult& result) {
  Generation generation(timeline, sampler, source, costs, request, result);
  KAKEYA_TRY(generation.begin(timeline.logits()));
  KAKEYA_TRY(generation.deliver(on_token));
  while (!generation.done()) {
    const Status run = generation.run_round();
    KAKEYA_TRY(generation.deliver(on_token));
    // Where the callback stops, what came behind does not count.
    if (!generation.stopped_by_callback()) KAKEYA_TRY(run);
  }
  generation.finish();
  return {};
}

}  // namespace kakeya
