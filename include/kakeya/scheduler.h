// Runs many requests at once: every step is one forward pass over rows of all of them. The output
// of a request is what a session of its own would give, token for token.
//
//   auto scheduler = engine->create_scheduler({}).value();
//   scheduler->add({.prompt = ids, .on_token = ..., .on_end = ...});
//   while (scheduler->step().value()) {}
//
// add(), cancel(), stop() and statistics() may be called from any thread, and from callbacks.
// step() and wait() belong to one thread at a time, and not to callbacks. Callbacks are called by
// the thread that steps or stops, one after the other between two passes. They must be quick, for
// every other request waits meanwhile. What a callback or a constraint throws ends its own request
// with kInternal, and no other. docs/scheduler.md says what a step runs.
//
// A request generates, unless it asks for the embedding of its prompt, or for the log-probabilities
// of its tokens. Prompts of all three kinds are run in chunks of the same passes, and cancel(),
// deadlines, priorities and memory are the same.
//
// Requests whose sessions grow (SessionOptions::grow) are admitted as soon as there is memory for
// their prompts. Where it ends while they run, the last one of the lowest priority is preempted: it
// waits for memory, and goes on where it was. So is one of lower priority than a request that waits
// for its place or memory. What a preempted request gives does not change.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kakeya/embedding.h"
#include "kakeya/logprobs.h"
#include "kakeya/memory.h"
#include "kakeya/options.h"
#include "kakeya/session.h"
#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya {

struct SchedulerOptions {
  std::int64_t max_sequences = 64;  // requests that run at once; others wait
  std::int64_t max_waiting = 4096;  // add() refuses beyond
  // Most rows of one pass, of all requests together.
  std::int64_t max_rows = 512;
  // Most rows of prompts in one pass while other requests decode: no answer waits longer for its
  // next token than a pass of so many rows takes.
  std::int64_t prefill_rows = 128;
  // Most rows of one pass whose logits are looked at: one a request that decodes, one a draft, and
  // those that are scored.
  std::int64_t max_logit_rows = 128;

  static constexpr std::int64_t kMostSequences = 1024;
  static constexpr std::int64_t kMostRows = 1 << 20;
};

using RequestId = std::uint64_t;

// How likely each token of a text is behind those before it, as Session::score() says.
struct ScoreOptions {
  std::int64_t first = 1;  // index of the first token that is scored, 1 to the text's length - 1
  int top_logprobs = 0;    // so many of the likeliest tokens there, 0 to kMostTopLogprobs
};

// How a request ended.
struct RequestResult {
  // The error of a request that could not go on: kCancelled, kDeadlineExceeded, kResourceExhausted;
  // kUnavailable where a device failed.
  Status status;
  GenerateResult generated;  // what there was until then; of its prompt in any case
  // From add() until it began to run; 0 if it never did.
  double queue_seconds = 0.0;
  // From add() until its first token was chosen; 0 if none was.
  double first_token_seconds = 0.0;
  std::vector<float> embedding = {};       // [hidden_size]; of a request that asked, and succeeded
  std::vector<TokenLogprobs> scores = {};  // of ScoreOptions::first and later tokens; the same
};

struct Request {
  std::vector<TokenId> prompt;  // not empty
  GenerateOptions generate = {};
  // At most one of the next two. With one of them nothing is generated, `generate` and `on_token`
  // are not looked at, and the result comes by on_end.
  std::optional<EmbeddingOptions> embedding = {};  // the same bits as Engine::embed()
  std::optional<ScoreOptions> score = {};          // the same numbers as Session::score()
  // If there are none: the engine's or, of an embedding, those that Engine::embed() uses.
  std::optional<SessionOptions> session = {};
  // Higher ones start first, and preempt lower ones that run. Where they pass by a lower priority
  // for ten seconds one request of it starts, which is not preempted for their places.
  int priority = 0;
  // Who asks. Those of one priority take turns in starting, whoever has how many waiting; requests
  // of one client start in order.
  std::string client = {};
  // From then on the request ends with kDeadlineExceeded.
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
  // Called once, when the prompt has been run and before its first token, with how many of its
  // tokens were taken over: from the prompt cache, or from a request that ran. May be empty.
  std::function<void(std::int64_t cached)> on_prompt = {};
  // Called for each token, after the pass that gave it; false ends the request after it. If it
  // throws, that was the last token.
  TokenCallback on_token = {};
  // Called once, at the end, unless add() refused. What it throws is dropped: all is over then.
  std::function<void(RequestId id, const RequestResult& result)> on_end = {};
};

// Since the scheduler was made.
struct SchedulerStatistics {
  std::int64_t waiting = 0;  // now
  std::int64_t running = 0;  // now
  std::int64_t passes = 0;
  std::int64_t prompt_rows = 0;  // run, without those taken over
  std::int64_t shared_rows = 0;  // of prompts, taken over from requests that were running
  std::int64_t preemptions = 0;  // times that a request gave its memory to others, to go on later
  std::int64_t tokens = 0;       // delivered: without those that a callback did not want
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  // By DraftReason: rounds of requests, each with or without drafts.
  std::array<std::int64_t, kDraftReasons> rounds = {};
  std::uint64_t bytes = 0;  // weights and cached rows that passes have read
};

class Scheduler {
 public:
  // As stop() with kCancelled. Not from a callback. The memory of its passes stays with the engine,
  // for later ones: Engine::footprint() does not become smaller by it.
  virtual ~Scheduler() = default;

  // Queues a request. Errors: kInvalidArgument for an empty prompt, ids outside the vocabulary,
  // options out of range, a text to embed that is longer than Engine::max_context(), or one that is
  // to be embedded and scored; kResourceExhausted if the context or the queue is too small for it,
  // or if its session would not fit into the memory limit were it alone; after stop(), what that
  // was told.
  virtual Result<RequestId> add(Request request) = 0;

  // Ends a request before the next pass, with kCancelled. Errors: kNotFound if it has ended.
  virtual Status cancel(RequestId id) = 0;

  // Runs one pass over what there is to do; false if no request is left. Errors of a request end
  // that request alone. While all that is left waits for memory that others of the engine hold, a
  // step runs nothing, takes some milliseconds and says true. Errors: kFailedPrecondition within a
  // callback, or while another thread steps; nothing happens then.
  virtual Result<bool> step() = 0;

  // Sleeps until there is something to step, and says true; false once `until` has passed or the
  // scheduler is stopped. add(), cancel() and stop() wake it, and so does a deadline, or memory
  // that becomes free for a request that waits for it. Within a callback it says false at once.
  virtual bool wait(std::chrono::steady_clock::time_point until) = 0;

  // Ends all requests with `why`, on_end for each, and refuses others from now on; success stands
  // for kCancelled. If a step is going on, it does so before it returns, and stop() does not wait
  // for it; else all have ended when this returns. Only the first call counts.
  virtual void stop(Status why) = 0;

  virtual SchedulerStatistics statistics() const = 0;
};

}  // namespace kakeya
