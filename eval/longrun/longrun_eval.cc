#include "eval/longrun/longrun_eval.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "kakeya/scheduler.h"
#include "runtime/session_impl.h"

namespace kakeya::eval {
namespace {

// Between two looks at memory, which take some microseconds.
constexpr double kLookSeconds = 0.1;

// The common part of both ways to run: the clock, the buckets, and what becomes of answers.
class LongRun {
 public:
  LongRun(EngineImpl& engine, const PromptSet& set, const LongRunOptions& options)
      : engine_(engine), set_(set), options_(options), recorder_(options.length) {
    report_.prompts.resize(set.prompts.size());
    for (std::size_t i = 0; i < set.prompts.size(); ++i) {
      report_.prompts[i].prompt = set.prompts[i].id;
    }
  }
  virtual ~LongRun() = default;
  LongRun(const LongRun&) = delete;
  LongRun& operator=(const LongRun&) = delete;

  Result<LongRunReport> run() {
    clock_ = Stopwatch();
    KAKEYA_TRY(decode());
    report_.seconds = clock_.seconds();
    report_.complete = recorder_.done(report_.seconds);
    report_.buckets = recorder_.rows(report_.seconds);
    // They are asked in their order.
    report_.prompts.resize(static_cast<std::size_t>(
        std::min<std::int64_t>(conversations_, std::ssize(report_.prompts))));
    return std::move(report_);
  }

 protected:
  // Until over(); looks when all sessions are there, and at its end. Errors: those that end the run
  // without a report.
  virtual Status decode() = 0;

  bool over() const {
    if (failures_in_a_row_ >= kMostFailuresInARow) return true;
    return recorder_.done(clock_.seconds()) || (options_.interrupted && options_.interrupted());
  }

  // The number of a conversation that begins now.
  std::int64_t begin_conversation() {
    recorder_.begin_conversation(clock_.seconds());
    return conversations_++;
  }
  std::size_t prompt_index(std::int64_t conversation) const {
    return static_cast<std::size_t>(conversation) % set_.prompts.size();
  }
  const EvalPrompt& prompt_of(std::int64_t conversation) const {
    return set_.prompts[prompt_index(conversation)];
  }

  // An answer that went on until the context was full.
  void take_answer(std::int64_t conversation, std::span<const TokenId> ids) {
    failures_in_a_row_ = 0;
    LongRunAnswers& answers = report_.prompts[prompt_index(conversation)];
    std::string sha256 = options_.hash(ids);
    ++answers.answers;
    if (answers.sha256.empty()) answers.sha256 = sha256;
    if (answers.sha256 == sha256) ++answers.equal;
  }

  void take_failure(std::int64_t conversation, const std::string& message) {
    ++failures_in_a_row_;
    report_.failures.push_back({.conversation = conversation,
                                .prompt = prompt_of(conversation).id,
                                .seconds = clock_.seconds(),
                                .error = message.substr(0, 1000)});
  }

  // Memory and progress, now.
  void look() {
    last_look_ = clock_.seconds();
    recorder_.see_memory(last_look_, engine_.footprint().total_reserved(),
                         options_.resident_bytes());
    if (!options_.on_progress) return;
    options_.on_progress({.share = recorder_.share_done(last_look_),
                          .seconds = last_look_,
                          .tokens = recorder_.tokens(),
                          .conversations = conversations_});
  }
  void look_now_and_then() {
    if (clock_.seconds() - last_look_ >= kLookSeconds) look();
  }

  EngineImpl& engine_;
  const PromptSet& set_;
  const LongRunOptions& options_;
  Stopwatch clock_;
  LongRunRecorder recorder_;

 private:
  LongRunReport report_;
  std::int64_t conversations_ = 0;
  std::int64_t failures_in_a_row_ = 0;
  double last_look_ = -kLookSeconds;  // the first one is due at once
};

// One session, whose text begins anew where its context is full.
class LongSessionRun final : public LongRun {
 public:
  using LongRun::LongRun;

  // Makes the session, before the clock counts.
  Status prepare() {
    KAKEYA_ASSIGN_OR_RETURN(session_, engine_.create_session(options_.session));
    return {};
  }

 private:
  Status decode() override {
    look();
    while (!over()) {
      const std::int64_t conversation = begin_conversation();
      // Whatever goes wrong, the next one is asked.
      Status talked = guarded_talk(conversation);
      if (!talked) take_failure(conversation, talked.error().message());
    }
    look();
    return {};
  }

  Status guarded_talk(std::int64_t conversation) {
    try {
      return talk(conversation);
    } catch (const std::exception& thrown) {
      return error(StatusCode::kInternal, "{}", thrown.what());
    }
  }

  Status talk(std::int64_t conversation) {
    const std::vector<TokenId>& prompt = prompt_of(conversation).ids;
    KAKEYA_TRY(session_->sync(prompt));
    GenerateOptions generate = {.sampling = options_.sampling,
                                .draft_length = options_.draft_length,
                                .ignore_model_stop_ids = true};
    while (!over()) {
      generate.max_tokens = std::min(kLongestTurn, recorder_.tokens_to_boundary());
      KAKEYA_ASSIGN_OR_RETURN(const GenerateResult result,
                              session_->generate(generate, [this](const TokenEvent&) {
                                look_now_and_then();
                                return !over();
                              }));
      record(result);
      if (result.stop_reason != StopReason::kContext) continue;
      take_answer(conversation, session_->tokens().subspan(prompt.size()));
      break;
    }
    return {};
  }

  // A round lasts until the next one begins. The first token of a turn comes out of the pass that
  // ends the prompt, which is no round.
  void record(const GenerateResult& result) {
    if (result.ids.empty()) return;
    const double end = clock_.seconds();
    const double begin = end - result.decode_seconds;
    recorder_.add({.end_seconds = begin, .tokens = 1});
    for (std::size_t i = 0; i < result.rounds.size(); ++i) {
      const RoundRecord& round = result.rounds[i];
      const bool last = i + 1 == result.rounds.size();
      const double until = last ? result.decode_seconds : result.rounds[i + 1].start_seconds;
      recorder_.add({.end_seconds = begin + until,
                     .seconds = until - round.start_seconds,
                     .tokens = round.committed,
                     .drafted = round.drafted,
                     .accepted = round.accepted});
    }
  }

  std::unique_ptr<Session> session_;
};

// A run with options.sessions requests at once; where one has ended the next one is asked.
class LongSchedulerRun final : public LongRun {
 public:
  using LongRun::LongRun;
  ~LongSchedulerRun() override { stopping_ = true; }  // what is left ends with the scheduler

  Status prepare() {
    KAKEYA_ASSIGN_OR_RETURN(
        scheduler_, engine_.create_scheduler(
                        {.max_sequences = options_.sessions,
                         .max_logit_rows = std::max<std::int64_t>(128, options_.sessions * 16)}));
    return {};
  }

 private:
  Status decode() override {
    for (std::int64_t i = 0; i < options_.sessions; ++i) ask();
    SchedulerStatistics before = scheduler_->statistics();
    while (!over()) {
      const double begin = clock_.seconds();
      KAKEYA_TRY(scheduler_->step());
      const double end = clock_.seconds();
      const SchedulerStatistics now = scheduler_->statistics();
      if (now.tokens > before.tokens) {
        recorder_.add({.end_seconds = end,
                       .seconds = end - begin,
                       .tokens = now.tokens - before.tokens,
                       .drafted = now.drafted - before.drafted,
                       .accepted = now.accepted - before.accepted});
      }
      before = now;
      // Between two conversations the ledger holds less. Maybe not all of them fit into memory.
      most_running_ = std::max(most_running_, now.running);
      if (now.running == most_running_) look_now_and_then();
    }
    look();
    stopping_ = true;
    scheduler_->stop({});
    return {};
  }

  void ask() {
    if (over()) return;
    const std::int64_t conversation = begin_conversation();
    const std::vector<TokenId>& prompt = prompt_of(conversation).ids;
    Request request;
    request.prompt = prompt;
    request.session = options_.session;
    request.generate = {.max_tokens = options_.session.context - std::ssize(prompt),
                        .sampling = options_.sampling,
                        .draft_length = options_.draft_length,
                        .ignore_model_stop_ids = true};
    request.on_end = [this, conversation](RequestId, const RequestResult& result) {
      end(conversation, result);
    };
    // One that is refused is followed by the next one, until over() says that it is enough.
    if (const auto added = scheduler_->add(std::move(request)); !added) {
      take_failure(conversation, added.error().message());
      ask();
    }
  }

  void end(std::int64_t conversation, const RequestResult& result) {
    if (stopping_) return;
    if (result.status) {
      take_answer(conversation, result.generated.ids);
    } else {
      take_failure(conversation, result.status.error().message());
    }
    ask();
  }

  std::unique_ptr<Scheduler> scheduler_;
  std::int64_t most_running_ = 1;
  bool stopping_ = false;
};

Status check_prompts(const PromptSet& set, std::int64_t context) {
  if (set.prompts.empty()) return invalid_argument("{} holds no prompt", set.name);
  for (const EvalPrompt& prompt : set.prompts) {
    if (2 * std::ssize(prompt.ids) <= context) continue;
    return invalid_argument(
        "SessionOptions::context must be twice the longest prompt, {} tokens for {}, or more but "
        "is "
        "{}",
        2 * prompt.ids.size(), prompt.id, context);
  }
  return {};
}

template <typename Run>
Result<LongRunReport> prepare_and_run(EngineImpl& engine,
                                      const PromptSet& set,
                                      const LongRunOptions& options) {
  Run run(engine, set, options);
  KAKEYA_TRY(run.prepare());
  return run.run();
}

}  // namespace

Result<LongRunReport> run_long(EngineImpl& engine,
                               const PromptSet& set,
                               const LongRunOptions& options) {
  LongRunOptions whole = options;
  whole.session.context = engine.session_context(options.session);
  KAKEYA_TRY(check_prompts(set, whole.session.context));
  KAKEYA_TRY(validate_generation(
      {.sampling = options.sampling, .draft_length = options.draft_length}, engine.vocab_size()));
  if (whole.sessions > 1) return prepare_and_run<LongSchedulerRun>(engine, set, whole);
  return prepare_and_run<LongSessionRun>(engine, set, whole);
}

}  // namespace kakeya::eval
