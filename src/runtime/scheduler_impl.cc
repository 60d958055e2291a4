#include "runtime/scheduler_impl.h"

#include <algorithm>
#include <span>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/engine_impl.h"

namespace kakeya {
namespace {

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

bool is_over(const std::optional<std::chrono::steady_clock::time_point>& deadline) {
  return deadline && std::chrono::steady_clock::now() >= *deadline;
}

}  // namespace

SchedulerImpl::SchedulerImpl(EngineImpl& engine,
                             const SchedulerOptions& options,
                             std::shared_ptr<const void> owner)
    : owner_(std::move(owner)), engine_(engine), options_(options) {
  options_.max_logit_rows = std::min(options.max_logit_rows, options.max_rows);
  const auto most = static_cast<std::size_t>(options.max_sequences);
  running_.reserve(most);
  jobs_.reserve(most);
  choices_.reserve(most);
  lengths_.reserve(most);
}

Result<std::unique_ptr<Scheduler>> SchedulerImpl::create(EngineImpl& engine,
                                                         const SchedulerOptions& options,
                                                         std::shared_ptr<const void> owner) {
  KAKEYA_TRY(check_options(options));
  std::unique_ptr<SchedulerImpl> scheduler(new SchedulerImpl(engine, options, std::move(owner)));
  KAKEYA_TRY(engine.reserve_passes(options.max_sequences, options.max_rows,
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
  KAKEYA_TRY(validate_generation(request.generate, vocab_size));
  const std::int64_t context =
      engine_.session_context(request.session.value_or(engine_.session_options()));
  if (std::ssize(request.prompt) > context) {
    return error(StatusCode::kResourceExhausted,
                 "context of {} tokens is exceeded: the prompt has {} tokens", context,
                 request.prompt.size());
  }
  const std::lock_guard lock(mutex_);
  if (static_cast<std::int64_t>(live_.size()) >= options_.max_sequences + options_.max_waiting) {
    return error(StatusCode::kResourceExhausted, "{} requests are waiting already",
                 options_.max_waiting);
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->id = next_id_++;
  sequence->request = std::move(request);
  live_.emplace_back(sequence->id, sequence.get());
  arrived_.push_back(std::move(sequence));
  ++statistics_.waiting;
  return live_.back().first;
}

Status SchedulerImpl::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(live_.begin(), live_.end(), [&](const auto& live) { return live.first == id; });
  if (found == live_.end()) return error(StatusCode::kNotFound, "request {} has ended", id);
  found->second->cancelled = true;
  return {};
}

SchedulerStatistics SchedulerImpl::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

void SchedulerImpl::take_arrived() {
  const std::lock_guard lock(mutex_);
  for (std::unique_ptr<Sequence>& sequence : arrived_) {
    const auto behind = std::upper_bound(
        waiting_.begin(), waiting_.end(), sequence,
        [](const auto& a, const auto& b) { return a->request.priority > b->request.priority; });
    waiting_.insert(behind, std::move(sequence));
  }
  arrived_.clear();
}

void SchedulerImpl::end(Sequence& sequence, Status status) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(live_, [&](const auto& live) { return live.first == sequence.id; });
    --(sequence.session == nullptr ? statistics_.waiting : statistics_.running);
  }
  leave_followers(sequence);
  if (sequence.generation) sequence.generation->finish();
  if (sequence.session != nullptr && status) {
    sequence.session->keep_for_others();
  }
  sequence.generation.reset();
  sequence.session.reset();
  sequence.part = -1;
  if (sequence.request.on_end) {
    sequence.request.on_end(sequence.id, {std::move(status), std::move(sequence.prepared.result)});
  }
  sequence.id = 0;
}

void SchedulerImpl::remove_ended(Sequences& sequences) {
  std::erase_if(sequences, [](const auto& sequence) { return sequence->id == 0; });
}

void SchedulerImpl::end_overdue() {
  for (Sequences* sequences : {&waiting_, &running_}) {
    for (const auto& sequence : *sequences) {
      if (sequence->cancelled) {
        end(*sequence, error(StatusCode::kCancelled, "request {} was cancelled", sequence->id));
      } else if (is_over(sequence->request.deadline)) {
        end(*sequence, error(StatusCode::kDeadlineExceeded, "the deadline of request {} is over",
                             sequence->id));
      }
    }
    remove_ended(*sequences);
  }
}

// In order: one that does not fit keeps those behind it waiting, so that it gets its turn.
void SchedulerImpl::admit() {
  while (!waiting_.empty() && static_cast<std::int64_t>(running_.size()) < options_.max_sequences) {
    Sequence& next = *waiting_.front();
    const Status started = start(next);
    if (!started && started.error().code() == StatusCode::kResourceExhausted && !running_.empty()) {
      next.session.reset();
      return;
    }
    if (!started) {
      next.session.reset();
      end(next, started);
    } else {
      running_.push_back(std::move(waiting_.front()));
      const std::lock_guard lock(mutex_);
      --statistics_.waiting;
      ++statistics_.running;
    }
    waiting_.erase(waiting_.begin());
  }
}

Status SchedulerImpl::start(Sequence& sequence) {
  const Request& request = sequence.request;
  KAKEYA_ASSIGN_OR_RETURN(
      auto session, engine_.create_session(request.session.value_or(engine_.session_options())));
  std::unique_ptr<SessionImpl> own(static_cast<SessionImpl*>(session.release()));
  if (own->timeline().recomputes()) {
    return invalid_argument("a session that recomputes cannot share passes");
  }
  KAKEYA_TRY(own->append(request.prompt));
  KAKEYA_TRY(own->prepare(request.generate, sequence.prepared));
  own->start_from_cache();
  sequence.watch = Stopwatch();
  sequence.prepared.result.prefill_tokens = std::ssize(own->timeline().pending());
  sequence.session = std::move(own);
  return {};
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
  take_arrived();
  end_overdue();
  admit();
  follow();
  if (running_.empty()) return !waiting_.empty();
  {
    const Workspace::Turn turn = engine_.workspace().take_turn();
    rows_ = 0;
    logit_rows_ = 0;
    plan_rounds();
    plan_prompts();
    draft();
    run();
  }
  deliver();
  return true;
}

// Every sequence that decodes has a row.
void SchedulerImpl::plan_rounds() {
  rounds_ = 0;
  const std::size_t count = running_.size();
  for (std::size_t i = 0; i < count; ++i) {
    Sequence& sequence = *running_[(first_round_ + i) % count];
    sequence.part = -1;
    sequence.prompt_rows = 0;
    if (!sequence.generation || rows_ + 1 > std::min(options_.max_rows, options_.max_logit_rows)) {
      continue;
    }
    if (!sequence.generation->begin_round()) continue;
    sequence.part = 0;
    ++rounds_;
    ++rows_;
  }
  logit_rows_ = rows_;
  plan_drafts();
  ++first_round_;
}

// What room there is goes to drafts, in turn, but for the rows of prompts: drafts can wait.
void SchedulerImpl::plan_drafts() {
  lengths_.clear();
  const std::size_t count = running_.size();
  for (std::size_t i = 0; i < count; ++i) {
    Sequence& sequence = *running_[(first_round_ + i) % count];
    if (sequence.part == 0) lengths_.push_back(sequence.generation->round_choice());
  }
  const bool prompts = has_prompts();
  const std::int64_t prompt_rows = prompts ? options_.prefill_rows : 0;
  const std::int64_t prompt_logits = prompts ? 1 : 0;
  choose_together(lengths_, std::min(options_.max_rows - rows_ - prompt_rows,
                                     options_.max_logit_rows - logit_rows_ - prompt_logits));
  auto choice = lengths_.begin();
  for (std::size_t i = 0; i < count; ++i) {
    Sequence& sequence = *running_[(first_round_ + i) % count];
    if (sequence.part < 0) continue;
    sequence.generation->plan(choice->length);
    rows_ += choice->length;
    logit_rows_ += choice->length;
    ++choice;
  }
}

bool SchedulerImpl::has_prompts() const {
  return std::any_of(running_.begin(), running_.end(), [](const auto& sequence) {
    return !sequence->generation && sequence->leader == nullptr;
  });
}

// Prompts take turns in being first: a short one does not wait for the end of a long one.
void SchedulerImpl::plan_prompts() {
  const std::int64_t most = rounds_ > 0 ? options_.prefill_rows : options_.max_rows;
  std::int64_t room = std::min(most, options_.max_rows - rows_);
  const std::size_t count = running_.size();
  for (std::size_t i = 0; i < count && room > 0; ++i) {
    Sequence& sequence = *running_[(first_prompt_ + i) % count];
    if (sequence.generation || sequence.leader != nullptr) continue;
    if (logit_rows_ == options_.max_logit_rows) continue;
    sequence.prompt_rows =
        std::min({room, std::ssize(sequence.timeline().pending()), sequence.timeline().chunk()});
    sequence.part = 0;
    room -= sequence.prompt_rows;
    ++logit_rows_;  // of its last row, perhaps
  }
  ++first_prompt_;
}

void SchedulerImpl::draft() {
  const Stopwatch watch;
  jobs_.clear();
  std::int64_t tokens = 0;
  for (const auto& sequence : running_) {
    if (!sequence->generation || sequence->part < 0) continue;
    Generation& generation = *sequence->generation;
    if (generation.drafts().empty()) continue;
    DraftSource& source = sequence->session->drafts()->source();
    if (DflashSource* drafter = source.drafter()) {
      jobs_.push_back({.source = drafter,
                       .tokens = generation.timeline().tokens(),
                       .sampler = &generation.sampler(),
                       .out = generation.mutable_drafts()});
      tokens += std::ssize(generation.drafts());
    } else if (const Status drafted = generation.draft(); !drafted) {
      generation.plan(0);
    }
  }
  // A budget that refuses a copy costs drafts, not the answer.
  if (!DflashSource::draft_together(jobs_)) {
    for (const auto& sequence : running_) {
      if (sequence->generation && sequence->part >= 0) sequence->generation->plan(0);
    }
  }
  for (const auto& sequence : running_) {
    if (sequence->generation && sequence->part >= 0) sequence->generation->drop_forbidden_drafts();
  }
  draft_seconds_ = watch.seconds();
  engine_.draft_costs().learn_drafts(tokens, draft_seconds_);
}

void SchedulerImpl::run() {
  const Stopwatch watch;
  Pass pass(engine_.workspace());
  std::int64_t parts = 0;
  std::int64_t round_rows = 0;
  bool decodes = true;  // and nothing else
  for (const auto& sequence : running_) {
    if (sequence->part < 0) continue;
    Timeline& timeline = sequence->timeline();
    if (sequence->generation) {
      const auto drafts = sequence->generation->drafts();
      sequence->failed = pass.add(timeline, timeline.pending(), drafts, std::ssize(drafts) + 1);
      round_rows += std::ssize(drafts) + 1;
    } else {
      const auto rows = timeline.pending().first(static_cast<std::size_t>(sequence->prompt_rows));
      const bool last = rows.size() == timeline.pending().size();
      sequence->failed = pass.add(timeline, rows, {}, last ? 1 : 0);
      decodes = false;
    }
    sequence->part = sequence->failed ? parts++ : -1;
  }
  if (parts == 0) return;
  pass.run();
  pass_seconds_ = watch.seconds();
  choose(pass);
  // Rows of prompts cost less: most of them have no logits.
  if (decodes) engine_.draft_costs().learn(round_rows, watch.seconds());
  for (const auto& sequence : running_) {
    if (sequence->part >= 0) absorb(*sequence, pass);
  }
  const std::lock_guard lock(mutex_);
  ++statistics_.passes;
  statistics_.bytes += pass.bytes();
}

// The tokens of all rounds in one call.
void SchedulerImpl::choose(Pass& pass) {
  choices_.clear();
  for (const auto& sequence : running_) {
    if (sequence->part < 0 || !sequence->generation) continue;
    sequence->choice = std::ssize(choices_);
    choices_.push_back(sequence->generation->choice(pass.logits(sequence->part)));
  }
  engine_.workspace().executor().choose(choices_, engine_.workspace());
}

void SchedulerImpl::absorb(Sequence& sequence, Pass& pass) {
  if (!sequence.generation) {
    sequence.failed = absorb_prompt(sequence, pass);
    return;
  }
  Generation& generation = *sequence.generation;
  const std::size_t before = sequence.prepared.result.ids.size();
  sequence.failed = generation.absorb(choices_[static_cast<std::size_t>(sequence.choice)]);
  generation.end_round(draft_seconds_, pass_seconds_, pass.bytes());
  const std::lock_guard lock(mutex_);
  statistics_.tokens += static_cast<std::int64_t>(sequence.prepared.result.ids.size() - before);
  statistics_.drafted += generation.last_round().drafted;
  statistics_.accepted += generation.last_round().accepted;
}

Status SchedulerImpl::absorb_prompt(Sequence& sequence, Pass& pass) {
  Timeline& timeline = sequence.timeline();
  timeline.commit(sequence.prompt_rows);
  {
    const std::lock_guard lock(mutex_);
    statistics_.prompt_rows += sequence.prompt_rows;
  }
  if (!timeline.pending().empty()) return timeline.finish_chunk();
  SessionImpl& session = *sequence.session;
  PreparedGeneration& prepared = sequence.prepared;
  prepared.result.prefill_seconds = sequence.watch.seconds();
  sequence.generation.emplace(timeline, session.sampler(),
                              prepared.speculates ? &session.drafts()->source() : nullptr,
                              &engine_.draft_costs(), prepared.request, prepared.result);
  KAKEYA_TRY(sequence.generation->begin(pass.host_logits(sequence.part).row(0)));
  KAKEYA_TRY(timeline.finish_chunk());
  session.keep_for_others();
  const std::lock_guard lock(mutex_);
  statistics_.tokens += std::ssize(prepared.result.ids);
  return {};
}

// In no turn: callbacks may take their time.
void SchedulerImpl::deliver() {
  for (const auto& sequence : running_) {
    Status status = std::exchange(sequence->failed, {});
    if (status && sequence->generation) {
      status = sequence->generation->deliver(sequence->request.on_token);
    }
    const bool done = sequence->generation && sequence->generation->done();
    if (!status || done) end(*sequence, std::move(status));
  }
  remove_ended(running_);
}

}  // namespace kakeya
