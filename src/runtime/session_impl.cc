#include "runtime/session_impl.h"

#include <algorithm>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/session_rows.h"
#include "sampling/logprobs.h"

namespace kakeya {
namespace {

// The most tokens of a generation that memory outside the budget is held for beforehand.
constexpr std::int64_t kReservedTokens = 1 << 14;

// The median of the plain steps among the rounds, or what the engine holds of it; else 0.
double plain_step_seconds(const std::vector<RoundRecord>& rounds,
                          const DraftCosts& costs,
                          Position context) {
  std::vector<double> steps;
  for (const RoundRecord& round : rounds) {
    if (round.drafted == 0) steps.push_back(round.draft_seconds + round.verify_seconds);
  }
  if (steps.empty()) return costs.plain_seconds(context);
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::nth_element(steps.begin(), middle, steps.end());
  return *middle;
}

}  // namespace

Status validate_generation(const GenerateOptions& options, std::int64_t vocab_size) {
  KAKEYA_TRY(validate_sampling(options.sampling, vocab_size));
  if (options.max_tokens < 0) {
    return invalid_argument("GenerateOptions::max_tokens must be 0 or more but is {}",
                            options.max_tokens);
  }
  if (options.draft_length < kAutoDraftLength) {
    return invalid_argument(
        "GenerateOptions::draft_length must be 0 or more, or {} for auto, but is {}",
        kAutoDraftLength, options.draft_length);
  }
  return check_top_logprobs("GenerateOptions::top_logprobs", options.top_logprobs);
}

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

std::string_view draft_kind_name(DraftKind kind) {
  switch (kind) {
    case DraftKind::kNone:
      return "none";
    case DraftKind::kDflash:
      return "dflash";
    case DraftKind::kNgram:
      return "ngram";
    case DraftKind::kForm:
      return "form";
  }
  return "?";
}

std::string_view draft_reason_name(DraftReason reason) {
  switch (reason) {
    case DraftReason::kNoOffer:
      return "no offer";
    case DraftReason::kPlainDue:
      return "plain step due";
    case DraftReason::kNoGain:
      return "no gain";
    case DraftReason::kSpent:
      return "spent";
    case DraftReason::kTry:
      return "try";
    case DraftReason::kGain:
      return "gain";
    case DraftReason::kAsked:
      return "asked";
  }
  return "?";
}

double GenerateResult::acceptance_length() const {
  const auto drafting = std::count_if(rounds.begin(), rounds.end(),
                                      [](const auto& round) { return round.drafted > 0; });
  return drafting == 0 ? 1.0 : 1.0 + static_cast<double>(accepted) / static_cast<double>(drafting);
}

Result<SessionImpl::Busy> SessionImpl::begin() {
  if (busy_.exchange(true)) {
    return error(
        StatusCode::kFailedPrecondition,
        "the session is busy: another operation of it runs, of which this may be a callback");
  }
  return Busy(busy_);
}

Status SessionImpl::append(std::span<const TokenId> ids) {
  KAKEYA_ASSIGN_OR_RETURN(const Busy busy, begin());
  return timeline_->push(ids);
}

Result<std::int64_t> SessionImpl::sync(std::span<const TokenId> ids) {
  KAKEYA_ASSIGN_OR_RETURN(const Busy busy, begin());
  KAKEYA_TRY(timeline_->check(ids));
  const std::span<const TokenId> held = timeline_->tokens();
  const auto [mismatch, unused] = std::mismatch(held.begin(), held.end(), ids.begin(), ids.end());
  auto common = static_cast<Position>(mismatch - held.begin());
  // A ring that no longer holds the window before `common` has to start again.
  if (!timeline_->rewind(common)) {
    KAKEYA_TRY(timeline_->rewind(0));
    common = 0;
  }
  cached_ = std::min(cached_, timeline_->position());
  KAKEYA_TRY(timeline_->push(ids.subspan(static_cast<std::size_t>(common))));
  start_from_cache();
  return timeline_->position();
}

Status SessionImpl::prefill(const PrefillProgress& progress) {
  KAKEYA_ASSIGN_OR_RETURN(const Busy busy, begin());
  KAKEYA_TRY(run_prompt(start_from_cache(), PromptEnd::kLastToken, progress));
  keep_for_others();
  return {};
}

Status SessionImpl::grow() {
  const auto length = static_cast<Position>(timeline_->tokens().size());
  if (drafts_ != nullptr && drafts_->dflash() != nullptr) {
    KAKEYA_TRY(drafts_->dflash()->context().grow(length));
  }
  return timeline_->grow(length);
}

Position SessionImpl::start_from_cache() {
  if (!cursor_) return 0;
  const PromptCache::Start start = engine_.prompt_cache->take(*cursor_, parts());
  if (start.length > 0) cached_ = start.length;
  return start.branch;
}

Status SessionImpl::run_prompt(Position branch, PromptEnd end, const PrefillProgress& progress) {
  const Position begin = timeline_->position();
  if (branch > begin) {
    KAKEYA_TRY(timeline_->run_until(branch, 0, progress));
    keep_for_others();
  }
  // The caller sees one prompt.
  const Position before = timeline_->position() - begin;
  PrefillProgress of_all;
  if (progress) {
    of_all = [&](std::int64_t done, std::int64_t total) {
      return progress(before + done, before + total);
    };
  }
  const auto last = static_cast<Position>(timeline_->tokens().size()) - 1;
  const Position first = timeline_->position();
  const Stopwatch watch;
  KAKEYA_TRY(timeline_->run_until(end == PromptEnd::kLastPass ? timeline_->last_chunk() : last, 0,
                                  of_all));
  if (cursor_) engine_.prompt_cache->note_run(timeline_->position() - first, watch.seconds());
  return {};
}

Status SessionImpl::own_raw_logits() {
  if (raw_logits_.size() > 0) return {};
  const auto bytes =
      static_cast<std::uint64_t>(timeline_->decoder().config().vocab_size) * sizeof(float);
  KAKEYA_ASSIGN_OR_RETURN(raw_logits_, engine_.budget.allocate(MemoryClass::kLogits, bytes));
  return {};
}

// Nothing of the session changes.
Status SessionImpl::check_score(std::span<const TokenId> ids, int top_logprobs) {
  KAKEYA_TRY(check_top_logprobs("top_logprobs", top_logprobs));
  if (timeline_->tokens().empty()) {
    return error(StatusCode::kFailedPrecondition,
                 "there is nothing before the tokens to score: append tokens");
  }
  if (timeline_->recomputes()) {
    return error(StatusCode::kUnimplemented,
                 "tokens cannot be scored where all of the text is run again for each of them");
  }
  return timeline_->check_push(ids);
}

Result<std::vector<TokenLogprobs>> SessionImpl::score(std::span<const TokenId> ids,
                                                      int top_logprobs) {
  KAKEYA_ASSIGN_OR_RETURN(const Busy busy, begin());
  KAKEYA_TRY(check_score(ids, top_logprobs));
  std::vector<TokenLogprobs> scores;
  if (ids.empty()) return scores;
  scores.reserve(ids.size());
  // The first logits are those behind the last token that is there, which is run once more. The
  // prompt cache must not know of those to be scored: it has no logits.
  const auto before = static_cast<Position>(timeline_->tokens().size());
  const auto look = [&](Position position, std::span<const float> logits) -> Status {
    const auto next = static_cast<std::size_t>(position + 1 - before);
    if (next < ids.size()) scores.push_back(token_logprobs(logits, ids[next], top_logprobs));
    return check_logits(logits, position + 1);
  };
  start_from_cache();
  KAKEYA_TRY(timeline_->run_until(before - 1));
  // The last one stays pending: what comes behind it is not asked.
  KAKEYA_TRY(timeline_->push(ids.first(ids.size() - 1)));
  KAKEYA_TRY(timeline_->run_with_rows(RowKind::kLogits, look));
  KAKEYA_TRY(timeline_->push(ids.last(1)));
  keep_for_others();
  return scores;
}

Status SessionImpl::read_rows(std::span<const TokenId> ids, RowKind kind, const RowCallback& look) {
  KAKEYA_ASSIGN_OR_RETURN(const Busy busy, begin());
  if (timeline_->recomputes()) {
    return error(StatusCode::kUnimplemented,
                 "rows cannot be read where all of the text is run again for each token");
  }
  KAKEYA_TRY(timeline_->check_push(ids));
  if (ids.empty()) return {};
  // The prompt cache has no such rows: it must not know of these tokens.
  start_from_cache();
  KAKEYA_TRY(timeline_->run_pending());
  KAKEYA_TRY(timeline_->push(ids));
  KAKEYA_TRY(timeline_->run_with_rows(kind, look));
  keep_for_others();
  return timeline_->step_back();
}

Status SessionImpl::truncate(Position length) {
  KAKEYA_ASSIGN_OR_RETURN(const Busy busy, begin());
  KAKEYA_TRY(timeline_->rewind(length));
  cached_ = std::min(cached_, timeline_->position());
  return {};
}

Result<std::unique_ptr<Session>> SessionImpl::fork() {
  KAKEYA_ASSIGN_OR_RETURN(const Busy busy, begin());
  std::unique_ptr<SessionDrafts> drafts = drafts_ == nullptr ? nullptr : drafts_->fork();
  KAKEYA_ASSIGN_OR_RETURN(std::unique_ptr<Timeline> timeline,
                          timeline_->fork(drafts == nullptr ? nullptr : drafts->dflash()));
  auto copy =
      std::make_unique<SessionImpl>(std::move(timeline), nullptr, std::move(drafts), engine_, key_);
  copy->cached_ = std::min(cached_, copy->position());
  return copy;
}

SessionParts SessionImpl::parts() {
  SessionParts parts{.timeline = timeline_.get()};
  if (drafts_ == nullptr) return parts;
  parts.dflash = drafts_->dflash();
  return parts;
}

SnapshotKey SessionImpl::saved_key() const {
  SnapshotKey key = key_;
  key.erase(kScopeName);  // who may read the file may have it
  key["tables"] = engine_.tables->text();
  return key;
}

Status SessionImpl::snapshot(const std::string& path, std::string_view note) {
  KAKEYA_ASSIGN_OR_RETURN(const Busy busy, begin());
  return write_session(path, saved_key(), parts(), note);
}

Result<std::string> SessionImpl::restore(const std::string& path) {
  KAKEYA_ASSIGN_OR_RETURN(const Busy busy, begin());
  KAKEYA_ASSIGN_OR_RETURN(std::string note, read_session(path, saved_key(), parts()));
  cached_ = 0;
  return note;
}

Status SessionImpl::prepare(const GenerateOptions& options, PreparedGeneration& prepared) {
  KAKEYA_TRY(validate_generation(options, timeline_->decoder().config().vocab_size));
  if (timeline_->tokens().empty()) {
    return error(StatusCode::kFailedPrecondition, "there is nothing to continue: append tokens");
  }
  prepared.stop_ids = options.stop_ids;
  if (!options.ignore_model_stop_ids) {
    prepared.stop_ids.insert(prepared.stop_ids.end(), engine_.model_stop_ids.begin(),
                             engine_.model_stop_ids.end());
  }
  prepared.request = {.max_tokens = options.max_tokens,
                      .stop_ids = prepared.stop_ids,
                      .draft_length = options.draft_length};
  prepared.speculates = drafts_ != nullptr && options.draft_length != 0 && options.max_tokens > 1 &&
                        !timeline_->recomputes();
  if (sampler_ == nullptr) {
    KAKEYA_ASSIGN_OR_RETURN(
        Sampler sampler, Sampler::create(timeline_->decoder().config().vocab_size, engine_.budget));
    sampler_ = std::make_unique<Sampler>(std::move(sampler));
  }
  GenerateResult& result = prepared.result;
  if (options.logprobs) {
    KAKEYA_TRY(own_raw_logits());
    const auto width = static_cast<std::size_t>(timeline_->decoder().config().vocab_size);
    prepared.request.raw_logits = {raw_logits_.as<float>(), width};
    prepared.request.top_logprobs = options.top_logprobs;
  }
  const std::span<const TokenId> tokens = timeline_->tokens();
  sampler_->set_options(options.sampling, engine_.suppressed);
  sampler_->set_constraint(nullptr);
  sampler_->clear_history();
  for (const TokenId id : tokens.first(tokens.size() - result.ids.size())) {
    sampler_->add_prompt_token(id);
  }
  for (const TokenId id : result.ids) KAKEYA_TRY(sampler_->add_output_token(id));
  // It knows of those already.
  sampler_->set_constraint(options.constraint);
  const auto room = timeline_->context() - static_cast<Position>(tokens.size());
  // Beyond this they grow as tokens come: a request may ask for more than ever comes.
  const auto most = result.ids.size() +
                    static_cast<std::size_t>(std::min({options.max_tokens, room, kReservedTokens}));
  result.ids.reserve(most);
  result.rounds.reserve(most);
  return {};
}

Result<GenerateResult> SessionImpl::generate(const GenerateOptions& options,
                                             const TokenCallback& on_token) {
  KAKEYA_ASSIGN_OR_RETURN(const Busy busy, begin());
  PreparedGeneration prepared;
  KAKEYA_TRY(prepare(options, prepared));
  GenerateResult& result = prepared.result;
  const Stopwatch prefill_watch;
  const Position branch = start_from_cache();
  result.prefill_tokens =
      static_cast<std::int64_t>(timeline_->tokens().size()) - timeline_->position();
  const auto end = options.max_tokens > 0 ? PromptEnd::kLastPass : PromptEnd::kLastToken;
  KAKEYA_TRY(run_prompt(branch, end, options.on_prefill));
  KAKEYA_TRY(decode(prepared, on_token));
  result.prefill_seconds = prefill_watch.seconds() - result.decode_seconds;
  keep_for_others();
  return std::move(result);
}

bool SessionImpl::can_give(Position length) {
  return session_extent(parts(), length).has_value();
}

bool SessionImpl::take_rows(SessionImpl& other, Position length) {
  const auto extent = session_extent(other.parts(), length);
  if (!extent || !prepare_session(parts(), *extent, length)) return false;
  copy_rows(other.parts(), parts(), *extent);
  set_session(parts(), timeline_->tokens(), *extent);
  return true;
}

// A conversation goes on behind the answer. A drafter's context is kept as such: it takes less room
// than what it is made of, and whoever starts from it need not make it again.
void SessionImpl::keep_for_others() {
  if (!cursor_) return;
  const Workspace::Turn turn = timeline_->workspace().take_turn();
  if (timeline_->finish_chunk()) engine_.prompt_cache->put(*cursor_, parts());
}

Status SessionImpl::decode(PreparedGeneration& prepared, const TokenCallback& on_token) {
  GenerateResult& result = prepared.result;
  KAKEYA_TRY(kakeya::decode(
      *timeline_, *sampler_, sources(prepared), &engine_.draft_costs, prepared.request,
      [this] { keep_for_others(); }, on_token, result));
  result.plain_step_seconds =
      plain_step_seconds(result.rounds, engine_.draft_costs, timeline_->position());
  return {};
}

Footprint SessionImpl::footprint() const {
  Footprint footprint = timeline_->footprint();
  const std::uint64_t sampler = sampler_ == nullptr ? 0 : sampler_->bytes();
  footprint.reserved_bytes(MemoryClass::kLogits) += sampler;
  footprint.live_bytes(MemoryClass::kLogits) += sampler;
  footprint.reserved_bytes(MemoryClass::kLogits) += raw_logits_.size();
  footprint.live_bytes(MemoryClass::kLogits) += raw_logits_.size();
  if (drafts_ != nullptr && drafts_->dflash() != nullptr) {
    footprint += drafts_->dflash()->footprint();
  }
  return footprint;
}

}  // namespace kakeya
