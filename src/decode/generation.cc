#include "decode/generation.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "decode/step.h"

namespace kakeya {

Generation::Generation(Timeline& timeline,
                       Sampler& sampler,
                       std::span<DraftSource* const> sources,
                       DraftCosts* costs,
                       const DecodeRequest& request,
                       GenerateResult& result)
    : timeline_(timeline),
      sampler_(sampler),
      sources_(sources),
      costs_(costs),
      request_(request),
      result_(result) {
  KAKEYA_CHECK(sources.size() <= kMostSources);
  if (!sources.empty() && request.draft_length == kAutoDraftLength) {
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

std::uint64_t Generation::bytes_read() const {
  std::uint64_t bytes = timeline_.bytes_read();
  for (const DraftSource* source : sources_) bytes += source->bytes_read();
  return bytes;
}

bool Generation::is_over() {
  if (!done_ && position() >= timeline_.context()) stop(StopReason::kContext);
  return done_;
}

bool Generation::begin_round() {
  if (is_over()) return false;
  KAKEYA_CHECK(!timeline_.pending().empty());
  round_ = {.start_seconds = watch_.seconds()};
  bytes_before_ = bytes_read();
  again_seconds_ = 0.0;
  plan_ = {};
  offers_ = {};
  if (is_first() || sampler_.pace() != Constraint::Pace::kAtOnce) return true;
  const std::int64_t room = timeline_.context() - position() - 1;
  const std::int64_t most = std::min({timeline_.max_drafts(), remaining() - 1, room});
  for (std::size_t i = 0; most > 0 && i < sources_.size(); ++i) {
    offers_[i] = sources_[i]->offer(timeline_.tokens(), sampler_);
    offers_[i].length = std::min(offers_[i].length, most);
  }
  return true;
}

void Generation::plan() {
  RoundChoice choice = round_choice();
  choose_together({&choice, 1}, timeline_.max_drafts());
  plan_ = choice.plan;
}

RoundChoice Generation::round_choice() {
  return {.policy = policy_ ? &*policy_ : nullptr,
          .facts = {.offers = offers(), .remaining = remaining(), .context = position()},
          .length = std::max<std::int64_t>(0, request_.draft_length),
          .plan = {}};
}

void Generation::draft(std::vector<DraftJob>& jobs) {
  if (plan_.length == 0) return;
  DraftSource& source = *sources_[plan_.offer];
  const auto out = std::span(drafts_).first(static_cast<std::size_t>(plan_.length));
  if (DflashSource* drafter = source.drafter()) {
    jobs.push_back(
        {.source = drafter, .tokens = timeline_.tokens(), .sampler = &sampler_, .out = out});
  } else if (!source.draft(timeline_.tokens(), sampler_, out)) {
    drop_drafts();
  }
}

void Generation::drop_forbidden_drafts() {
  plan_.length = sampler_.allowed(drafts());
}

SequenceChoice Generation::choice(Rows logits) {
  return {.logits = logits,
          .position = position(),
          .sampler = &sampler_,
          .drafts = drafts(),
          .stop_ids = request_.stop_ids,
          .most = remaining(),
          .raw_logits = request_.raw_logits,
          .top_logprobs = request_.top_logprobs,
          .chosen = chosen_,
          .logprobs = &result_.logprobs};
}

Status Generation::commit(const SequenceChoice& choice,
                          double draft_seconds,
                          double verify_seconds) {
  const std::int64_t behind = std::ssize(timeline_.pending()) - 1;  // of the prompt, or run again
  timeline_.commit(behind);
  const auto chosen = choice.chosen.first(static_cast<std::size_t>(choice.count));
  timeline_.accept(chosen);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const TokenId id = chosen[i];
    ++round_.committed;
    if (i < choice.drafts.size() && id == choice.drafts[i]) ++round_.accepted;
    add(id);
  }
  if (is_first()) {
    // It belongs to the prefill. What a drafter makes of it waits for its first draft.
    begun_ = true;
    watch_ = Stopwatch();
    return choice.status;
  }
  // A round that an error ends has committed what was chosen before it.
  if (choice.status || round_.committed > 0) end_round(draft_seconds, verify_seconds);
  KAKEYA_TRY(choice.status);
  return behind > 0 ? timeline_.finish_chunk() : Status();
}

void Generation::end_round(double draft_seconds, double verify_seconds) {
  round_.drafted = static_cast<std::int32_t>(plan_.length);
  round_.kind = plan_.length == 0 ? DraftKind::kNone : offers_[plan_.offer].kind;
  round_.reason = plan_.reason;
  round_.draft_seconds = draft_seconds;
  round_.verify_seconds = again_seconds_ + verify_seconds;
  round_.bytes = bytes_read() - bytes_before_;
  result_.drafted += round_.drafted;
  result_.accepted += round_.accepted;
  result_.rounds.push_back(round_);
  if (policy_) policy_->observe(round_);
}

Status Generation::deliver(const TokenCallback& on_token) {
  if (!on_token) {
    delivered_ = result_.ids.size();
    return {};
  }
  const std::size_t round_begin = result_.ids.size() - static_cast<std::size_t>(round_.committed);
  while (delivered_ < result_.ids.size()) {
    const std::size_t at = delivered_++;
    const TokenEvent event = {
        .id = result_.ids[at],
        .drafted = at < round_begin + static_cast<std::size_t>(round_.accepted),
        .logprobs = request_.raw_logits.empty() ? nullptr : &result_.logprobs[at]};
    if (on_token(event)) continue;
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
  result_.decode_seconds += watch_.seconds();
  if (policy_) policy_->end();
}

Status Generation::run_round() {
  const Workspace::Turn turn = timeline_.workspace().take_turn();
  if (!begin_round()) return {};
  if (timeline_.recomputes() && !is_first()) {
    const Stopwatch watch;
    timeline_.forget();
    KAKEYA_TRY(timeline_.run_until(timeline_.last_chunk()));
    again_seconds_ = watch.seconds();
  }
  plan();
  StepPart part{.round = this};
  run_step(timeline_.workspace(), costs_, {&part, 1});
  return part.status;
}

Status decode(Timeline& timeline,
              Sampler& sampler,
              std::span<DraftSource* const> sources,
              DraftCosts* costs,
              const DecodeRequest& request,
              const std::function<void()>& after_first,
              const TokenCallback& on_token,
              GenerateResult& result) {
  Generation generation(timeline, sampler, sources, costs, request, result);
  while (!generation.done()) {
    const bool was_first = generation.is_first();
    const Status run = generation.run_round();
    KAKEYA_TRY(generation.deliver(on_token));
    if (was_first && !generation.is_first() && after_first) after_first();
    // Where the callback stops, what came behind does not count.
    if (!generation.stopped_by_callback()) KAKEYA_TRY(run);
  }
  generation.finish();
  return {};
}

}  // namespace kakeya
