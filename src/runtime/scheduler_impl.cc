#include "runtime/scheduler_impl.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/engine_impl.h"

namespace kakeya {
namespace {

// The time to wait before looking again whether a constraint's mask is there, if nobody else runs.
constexpr std::chrono::microseconds kMaskPause{500};

Status check_options(const SchedulerOptions& options) {
  const auto check = [](const char* name, std::int64_t value, std::int64_t most) -> Status {
    if (value >= 1 && value <= most) return {};
    return invalid_argument("SchedulerOptions::{} must be 1 to {} but is {}", name, most, value);
  };
  KAKEYA_TRY(check("max_sequences", options.max_sequences, SchedulerOptions::kMostSequences));
  KAKEYA_TRY(check("max_rows", options.max_rows, SchedulerOptions::kMostRows));
  KAKEYA_TRY(check("prefill_rows", options.prefill_rows, SchedulerOptions::kMostRows));
  KAKEYA_TRY(check("max_logit_rows", options.max_logit_rows, SchedulerOptions::kMostRows));
  return check("max_waiting", options.max_waiting, SchedulerOptions::kMostRows);
}

// Success unless it is to end: it was cancelled, or its deadline is over.
Status overdue(const Sequence& sequence, RequestQueue::Clock::time_point now) {
  if (sequence.cancelled) {
    return error(StatusCode::kCancelled, "request {} was cancelled", sequence.id);
  }
  if (!sequence.request.deadline || now < *sequence.request.deadline) return {};
  return error(StatusCode::kDeadlineExceeded, "the deadline of request {} is over", sequence.id);
}

// Checks what a request wants of its prompt.
Status check_wish(const Request& request, std::int64_t vocab_size, std::int64_t max_context) {
  const std::int64_t tokens = std::ssize(request.prompt);
  if (request.embedding && request.score) {
    return invalid_argument(
        "a request must have Request::embedding or Request::score but has both: make two of it");
  }
  if (request.embedding) return check_embedding(tokens, max_context, *request.embedding);
  if (request.score) return check_score(tokens, *request.score);
  if (request.generate.on_prefill) {
    return invalid_argument(
        "on_prefill of a request's GenerateOptions must be empty, for its prompt runs beside "
        "others, "
        "but is set");
  }
  return validate_generation(request.generate, vocab_size);
}

// The status of `call`; if it throws, kInternal with what it threw.
template <typename Call>
Status guarded(const char* what, const Call& call) {
  try {
    return call();
  } catch (const std::exception& failure) {
    return error(StatusCode::kInternal, "{} threw an exception: {}", what, failure.what());
  } catch (...) {
    return error(StatusCode::kInternal, "{} threw an exception", what);
  }
}

}  // namespace

SchedulerImpl::SchedulerImpl(EngineImpl& engine,
                             const SchedulerOptions& options,
                             std::shared_ptr<const void> owner)
    : owner_(std::move(owner)),
      engine_(engine),
      options_(options),
      admission_(engine),
      queue_(options.max_sequences + options.max_waiting) {
  options_.max_logit_rows = std::min(options.max_logit_rows, options.max_rows);
  const auto most = static_cast<std::size_t>(options.max_sequences);
  running_.reserve(most);
  parts_.reserve(most);
  sequences_.reserve(most);
  lengths_.reserve(most);
  candidates_.reserve(most);
  decoding_.reserve(most);
  prompts_.reserve(most);
}

Result<std::unique_ptr<Scheduler>> SchedulerImpl::create(EngineImpl& engine,
                                                         const SchedulerOptions& options,
                                                         std::shared_ptr<const void> owner) {
  KAKEYA_TRY(check_options(options));
  std::unique_ptr<SchedulerImpl> scheduler(new SchedulerImpl(engine, options, std::move(owner)));
  KAKEYA_ASSIGN_OR_RETURN(scheduler->passes_,
                          engine.reserve_passes(options.max_sequences, options.max_rows,
                                                scheduler->options_.max_logit_rows));
  return scheduler;
}

Result<RequestId> SchedulerImpl::add(Request request) {
  if (request.prompt.empty()) return invalid_argument("the prompt must have a token");
  const std::int64_t vocab_size = engine_.vocab_size();
  for (const TokenId id : request.prompt) {
    if (id >= 0 && id < vocab_size) continue;
    return invalid_argument("token id must be 0 to {} but is {}", vocab_size - 1, id);
  }
  KAKEYA_TRY(check_wish(request, vocab_size, engine_.max_context()));
  const std::int64_t context = engine_.session_context(options_of(request));
  if (std::ssize(request.prompt) > context) {
    return error(StatusCode::kResourceExhausted,
                 "context of {} tokens is exceeded: the prompt has {} tokens", context,
                 request.prompt.size());
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->request = std::move(request);
  KAKEYA_ASSIGN_OR_RETURN(sequence->need, need_of(*sequence));
  return queue_.add(std::move(sequence));
}

SessionOptions SchedulerImpl::options_of(const Request& request) const {
  if (request.session) return *request.session;
  if (request.embedding) return engine_.embedding_session(std::ssize(request.prompt));
  return engine_.session_options();
}

Result<std::uint64_t> SchedulerImpl::need_of(const Sequence& sequence) const {
  const Request& request = sequence.request;
  return admission_.need(options_of(request), request.generate.logprobs,
                         std::ssize(request.prompt) + std::ssize(sequence.prepared.result.ids),
                         passes_of(request));
}

WorkspacePlan SchedulerImpl::passes_of(const Request& request) const {
  WorkspacePlan plan;
  if (request.embedding) {
    plan.hidden_bytes = float_bytes(options_.max_rows, engine_.hidden_size());
  }
  return plan;
}

Status SchedulerImpl::cancel(RequestId id) {
  return queue_.cancel(id);
}

SchedulerStatistics SchedulerImpl::statistics() const {
  const std::lock_guard lock(mutex_);
  SchedulerStatistics statistics = statistics_;
  const RequestQueue::Counts counts = queue_.counts();
  statistics.waiting = counts.waiting;
  statistics.running = counts.running;
  return statistics;
}

bool SchedulerImpl::wait(std::chrono::steady_clock::time_point until) {
  return queue_.wait(until, [this](const Sequence& first) { return can_move(first); });
}

void SchedulerImpl::stop(Status why) {
  if (why) why = error(StatusCode::kCancelled, "the scheduler was stopped");
  queue_.close(why);
  if (queue_.claim()) finish_step();
}

SchedulerImpl::~SchedulerImpl() {
  stop(error(StatusCode::kCancelled, "the scheduler is gone"));
}

// It has ended before its callback hears of it, whatever that does.
void SchedulerImpl::end(Sequence& sequence, Status status) {
  const RequestId id = std::exchange(sequence.id, 0);
  queue_.remove(id, sequence.session != nullptr);
  give_up_session(sequence, status.has_value() && !sequence.cancelled);
  if (!sequence.request.on_end) return;
  // Its own rounds are parts of passes.
  GenerateResult& generated = sequence.prepared.result;
  generated.plain_step_seconds = engine_.draft_costs().plain_seconds(
      std::ssize(sequence.request.prompt) + std::ssize(generated.ids));
  RequestResult result{.status = std::move(status),
                       .generated = std::move(generated),
                       .queue_seconds = sequence.queue_seconds,
                       .first_token_seconds = sequence.first_token_seconds};
  if (sequence.reader && result.status) result.status = sequence.reader->finish(result);
  static_cast<void>(guarded("on_end", [&]() -> Status {
    sequence.request.on_end(id, result);
    return {};
  }));
}

void SchedulerImpl::give_up_session(Sequence& sequence, bool keeps) {
  leave_followers(sequence);
  if (sequence.generation) sequence.generation->finish();
  // Nothing goes on behind a text that was embedded.
  keeps = keeps && !sequence.request.embedding;
  if (sequence.session != nullptr && keeps) sequence.session->keep_for_others();
  sequence.generation.reset();
  sequence.session.reset();
  sequence.leader = nullptr;
}

void SchedulerImpl::finish_step() {
  while (!queue_.release()) end_all();
}

void SchedulerImpl::end_all() {
  const Status why = queue_.why_closed();
  for (const auto& sequence : queue_.take_all()) end(*sequence, why);
  for (const auto& sequence : running_) {
    if (sequence->id != 0) end(*sequence, why);
  }
  remove_ended();
}

void SchedulerImpl::remove_ended() {
  std::erase_if(running_, [](const auto& sequence) { return sequence->id == 0; });
  if (running_.empty()) row_limit_.reset();
}

void SchedulerImpl::end_overdue() {
  const auto now = RequestQueue::Clock::now();
  for (const auto& sequence : queue_.take_overdue(now)) end(*sequence, overdue(*sequence, now));
  for (const auto& sequence : running_) {
    if (Status status = overdue(*sequence, now); !status) end(*sequence, std::move(status));
  }
  remove_ended();
}

// Admits requests in order: one that does not fit keeps those behind it waiting, so that it gets
// its turn. Nothing is allocated before there is room for all of it.
void SchedulerImpl::admit() {
  while (Sequence* const next = queue_.front()) {
    const bool has_place = std::ssize(running_) < options_.max_sequences;
    const Result<bool> room = has_place ? make_room(*next) : false;
    if (!room) {
      end(*queue_.drop_front(), Unexpected(room.error()));
      continue;
    }
    if (!*room) {
      if (!preempt_for(*next)) return;
      continue;
    }
    Status started = guarded("the session", [&] { return start(*next); });
    if (started) {
      running_.push_back(queue_.pop_front());
      continue;
    }
    if (started.error().code() == StatusCode::kResourceExhausted) {
      // Somebody was quicker, or the system has less than the limit: more than this must be free.
      next->least = admission_.free_bytes() + 1;
      if (admission_.can_ever_have(next->least)) return;
    }
    end(*queue_.drop_front(), std::move(started));
  }
}

// Nobody is preempted for a request that could not start even then.
bool SchedulerImpl::preempt_for(const Sequence& next) {
  bool has_lower = false;
  std::uint64_t theirs = 0;
  for (const auto& sequence : running_) {
    if (sequence->standing() >= next.request.priority) continue;
    has_lower = true;
    theirs += sequence->session->footprint().total_reserved();
  }
  const std::uint64_t bytes = std::max(next.need, next.least);
  if (!has_lower || !admission_.can_have(bytes - std::min(bytes, theirs))) return false;
  preempt_one();
  return true;
}

Result<bool> SchedulerImpl::make_room(Sequence& sequence) {
  if (admission_.make_room(std::max(sequence.need, sequence.least))) return true;
  KAKEYA_ASSIGN_OR_RETURN(sequence.need, need_of(sequence));
  const std::uint64_t bytes = std::max(sequence.need, sequence.least);
  if (admission_.make_room(bytes)) return true;
  if (!running_.empty() || !admission_.is_alone()) return false;
  return error(StatusCode::kResourceExhausted,
               "a session of the request needs {}, but {} are free and nobody else has any",
               format_bytes(bytes), format_bytes(admission_.free_bytes()));
}

bool SchedulerImpl::can_move(const Sequence& sequence) const {
  if (admission_.can_have(std::max(sequence.need, sequence.least))) return true;
  const auto need = need_of(sequence);
  if (!need || admission_.can_have(std::max(*need, sequence.least))) return true;
  return running_.empty() && admission_.is_alone();
}

Status SchedulerImpl::start(Sequence& sequence) {
  const Request& request = sequence.request;
  KAKEYA_ASSIGN_OR_RETURN(auto session, engine_.create_session(options_of(request)));
  std::unique_ptr<SessionImpl> own(static_cast<SessionImpl*>(session.release()));
  GenerateResult& result = sequence.prepared.result;
  if (request.embedding || request.score) {
    KAKEYA_TRY(start_reading(sequence, *own));
  } else {
    KAKEYA_TRY(own->append(request.prompt));
    KAKEYA_TRY(own->append(result.ids));  // of one that was preempted
    KAKEYA_TRY(own->grow());
    KAKEYA_TRY(own->prepare(request.generate, sequence.prepared));
    sequence.branch = own->start_from_cache();
  }
  sequence.since_admitted = Stopwatch();
  if (result.ids.empty()) {
    sequence.queue_seconds = sequence.since_added.seconds();
    result.prefill_tokens = std::ssize(own->timeline().pending());
  }
  sequence.session = std::move(own);
  return {};
}

Status SchedulerImpl::start_reading(Sequence& sequence, SessionImpl& session) {
  const Request& request = sequence.request;
  const std::span<const TokenId> prompt(request.prompt);
  sequence.seeks = false;  // rows that are taken over cannot be read
  if (request.embedding) {
    if (!embedding_passes_) {
      KAKEYA_ASSIGN_OR_RETURN(embedding_passes_,
                              engine_.workspace().reserve_for_now(passes_of(request)));
    }
    sequence.reader = std::make_unique<EmbeddingReader>(*request.embedding, engine_.hidden_size());
    KAKEYA_TRY(session.append(prompt));
    return session.grow();
  }
  // The prompt cache must not know of the tokens that are scored: it has no logits.
  const auto first = static_cast<std::size_t>(request.score->first);
  sequence.reader = std::make_unique<ScoreReader>(prompt, *request.score);
  KAKEYA_TRY(session.append(prompt.first(first)));
  session.start_from_cache();
  KAKEYA_TRY(session.append(prompt.subspan(first)));
  return session.grow();
}

// Only those that were admitted before can lead, so there are no circles.
void SchedulerImpl::seek_leader(std::size_t index) {
  Sequence& sequence = *running_[index];
  sequence.seeks = false;
  const std::span<const TokenId> tokens = sequence.timeline().tokens();
  const Position most = std::ssize(tokens) - 1;  // for the last one gives the logits
  sequence.shared = sequence.timeline().position() + PromptCache::kLeastGain - 1;
  for (std::size_t i = 0; i < index; ++i) {
    Sequence& other = *running_[i];
    if (!sequence.session->has_rows_of(*other.session)) continue;
    const std::span<const TokenId> others = other.timeline().tokens();
    const auto mismatch =
        std::mismatch(tokens.begin(), tokens.end(), others.begin(), others.end()).first;
    const Position common = std::min<Position>(mismatch - tokens.begin(), most);
    if (common <= sequence.shared) continue;
    if (common <= other.timeline().position() && !other.session->can_give(common)) continue;
    sequence.leader = &other;
    sequence.shared = common;
  }
}

void SchedulerImpl::take_rows(Sequence& follower, Position length) {
  const std::int64_t rows = length - follower.timeline().position();
  SessionImpl& leader = *follower.leader->session;
  follower.leader = nullptr;
  if (rows <= 0 || !follower.session->take_rows(leader, length)) return;
  follower.prepared.result.prefill_tokens -= rows;
  const std::lock_guard lock(mutex_);
  statistics_.shared_rows += rows;
}

// A pass takes a leader at most a chunk further, which rings have room for.
void SchedulerImpl::follow() {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.generation) continue;
    if (sequence.seeks) seek_leader(i);
    if (sequence.leader == nullptr) continue;
    if (sequence.leader->timeline().position() < sequence.shared) continue;
    take_rows(sequence, sequence.shared);
  }
}

void SchedulerImpl::leave_followers(Sequence& leader) {
  for (const auto& follower : running_) {
    if (follower->leader != &leader) continue;
    take_rows(*follower, std::min(leader.timeline().position(), follower->shared));
    follower->seeks = true;
  }
}

Result<bool> SchedulerImpl::step() {
  if (!queue_.claim()) {
    return error(
        StatusCode::kFailedPrecondition,
        "expected nothing to be going on, got a step or a stop, maybe the one that calls this");
  }
  {
    const Step going_on(*this);
    step_once();
  }
  const RequestQueue::Counts counts = queue_.counts();
  return counts.waiting + counts.running > 0;
}

void SchedulerImpl::step_once() {
  if (queue_.is_closed()) return;
  queue_.take_arrived();
  end_overdue();
  if (running_.empty() || !lacks_memory_) admit();
  follow();
  if (!running_.empty()) {
    if (!row_limit_) row_limit_.emplace(engine_.workspace(), options_.prefill_rows);
    run_pass();
    deliver();
    if (parts_.empty() && awaits_mask_) queue_.pause(kMaskPause);
  } else if (queue_.front() != nullptr) {
    queue_.pause();  // for memory
  }
}

// Delivers tokens in no turn: others of the engine need not wait for callbacks.
void SchedulerImpl::deliver() {
  lacks_memory_ = false;
  for (const auto& sequence : running_) {
    Status status = std::exchange(sequence->failed, {});
    if (sequence->generation) {
      // Tokens chosen before an error are delivered; where the callback stops there was no error.
      Status delivered = deliver_tokens(*sequence);
      if (!delivered || sequence->generation->stopped_by_callback()) status = std::move(delivered);
    }
    const bool done = sequence->done();
    if (!done && can_wait_for_memory(*sequence, status)) {
      lacks_memory_ = true;
    } else if (!status || done) {
      end(*sequence, std::move(status));
    }
  }
  remove_ended();
  if (lacks_memory_) preempt_one();
}

bool SchedulerImpl::can_wait_for_memory(const Sequence& sequence, const Status& status) const {
  if (status || status.error().code() != StatusCode::kResourceExhausted) return false;
  if (!options_of(sequence.request).grow) return false;
  return need_of(sequence).has_value();
}

// One at a time: the others try again in the next step.
void SchedulerImpl::preempt_one() {
  if (running_.empty()) return;
  auto victim = running_.begin();
  for (auto other = victim; other != running_.end(); ++other) {
    if ((*other)->standing() <= (*victim)->standing()) victim = other;
  }
  Sequence& last = **victim;
  give_up_session(last, true);
  last.seeks = true;
  last.need = need_of(last).value_or(last.need);
  queue_.put_back(std::move(*victim));
  running_.erase(victim);
  const std::lock_guard lock(mutex_);
  ++statistics_.preemptions;
}

Status SchedulerImpl::deliver_tokens(Sequence& sequence) {
  Generation& generation = *sequence.generation;
  if (sequence.request.on_prompt && !std::exchange(sequence.told_prompt, true)) {
    const std::int64_t run = sequence.prepared.result.prefill_tokens;
    KAKEYA_TRY(guarded("on_prompt", [&]() -> Status {
      sequence.request.on_prompt(std::ssize(sequence.request.prompt) - run);
      return {};
    }));
  }
  Status delivered =
      guarded("a callback", [&] { return generation.deliver(sequence.request.on_token); });
  if (!delivered) KAKEYA_TRY(generation.drop_undelivered());
  count(sequence);
  return delivered;
}

void SchedulerImpl::count(Sequence& sequence) {
  const GenerateResult& result = sequence.prepared.result;
  const auto since = [](std::int64_t now, std::int64_t& counted) {
    return now - std::exchange(counted, now);
  };
  const std::lock_guard lock(mutex_);
  statistics_.tokens += since(std::ssize(result.ids), sequence.counted_tokens);
  statistics_.drafted += since(result.drafted, sequence.counted_drafted);
  statistics_.accepted += since(result.accepted, sequence.counted_accepted);
  for (; sequence.counted_rounds < result.rounds.size(); ++sequence.counted_rounds) {
    const DraftReason reason = result.rounds[sequence.counted_rounds].reason;
    ++statistics_.rounds[static_cast<std::size_t>(reason)];
  }
}

}  // namespace kakeya
