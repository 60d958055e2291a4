// Runs many requests at once: every step is one forward pass over rows of all of them. The output
// of a request is what a session of its own would give, token for token.
//
//   auto scheduler = engine->create_scheduler({}).value();
//   scheduler->add({.prompt = ids, .on_token = ..., .on_end = ...});
//   while (scheduler->step().value()) {}
//
// add() and cancel() may be called from any thread, and from callbacks. step() belongs to one
// thread at a time, which callbacks are called from. docs/scheduler.md says what a step runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

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
  // Most rows of one pass whose logits are looked at: one a request that decodes, and one a draft.
  std::int64_t max_logit_rows = 128;

  static constexpr std::int64_t kMostSequences = 1024;
  static constexpr std::int64_t kMostRows = 1 << 20;
};

using RequestId = std::uint64_t;

// How a request ended.
struct RequestResult {
  // The error of a request that could not go on: kCancelled, kDeadlineExceeded, kResourceExhausted.
  Status status;
  GenerateResult generated;  // what there was until then
};

struct Request {
  std::vector<TokenId> prompt;  // not empty
  GenerateOptions generate = {};
  std::optional<SessionOptions> session = {};  // the engine's if there are none
  int priority = 0;                            // higher ones start first
  // From then on the request ends with kDeadlineExceeded.
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
  // Called for each token, after the pass that gave it; false ends the request after it.
  TokenCallback on_token = {};
  // Called once, at the end, unless add() refused.
  std::function<void(RequestId id, const RequestResult& result)> on_end = {};
};

// Since the scheduler was made.
struct SchedulerStatistics {
  std::int64_t waiting = 0;  // now
  std::int64_t running = 0;  // now
  std::int64_t passes = 0;
  std::int64_t prompt_rows = 0;  // run, without those taken over
  std::int64_t shared_rows = 0;  // of prompts, taken over from requests that were running
  std::int64_t tokens = 0;       // generated
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  std::uint64_t bytes = 0;  // weights and cached rows that passes have read
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // Queues a request. Errors: kInvalidArgument for an empty prompt, ids outside the vocabulary or
  // options out of range; kResourceExhausted if the context or the queue is too small for it.
  virtual Result<RequestId> add(Request request) = 0;

  // Ends a request before the next pass, with kCancelled. Errors: kNotFound if it has ended.
  virtual Status cancel(RequestId id) = 0;

  // Runs one pass over what there is to do; false if nothing is left to do. Errors of a request end
  // that request alone.
  virtual Result<bool> step() = 0;

  virtual SchedulerStatistics statistics() const = 0;
};

}  // namespace kakeya
