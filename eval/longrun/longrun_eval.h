// One session, or several through a scheduler, that decode for as long as is asked: does memory
// stay as it is, do rounds take as long at the end as at the beginning, and is the same prompt
// still answered the same?
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "eval/longrun/longrun_report.h"
#include "eval/prompts/prompt_set.h"
#include "kakeya/options.h"
#include "runtime/engine_impl.h"

namespace kakeya::eval {

struct LongRunProgress {
  double share = 0.0;  // of the run that is done, 0 to 1
  double seconds = 0.0;
  std::int64_t tokens = 0;
  std::int64_t conversations = 0;
};

struct LongRunOptions {
  LongRunLength length = {};
  std::int64_t sessions = 1;  // above 1: so many requests of a scheduler at once
  SessionOptions session = {};
  SamplingOptions sampling = {};
  std::int64_t draft_length = kAutoDraftLength;
  std::function<std::uint64_t()> resident_bytes = {};
  std::function<std::string(std::span<const TokenId>)> hash = {};
  // May be empty; the run ends once it says true, after a round.
  std::function<bool()> interrupted = {};
  // May be empty; called some times a second.
  std::function<void(const LongRunProgress&)> on_progress = {};
};

// The number of conversations failing one after the other that ends a run.
inline constexpr std::int64_t kMostFailuresInARow = 10;

// A conversation is a prompt of the set and an answer that goes on, whatever stop ids it has, until
// the context is full; then the next prompt is asked, from the first one again behind the last one.
// The session stays the same, and so does its memory; a scheduler makes one for each conversation.
// The caller adds the report's options and probes. Errors: kInvalidArgument for prompts that leave
// no room in the context, and as create_session() and create_scheduler(). What fails afterwards is
// a failure of the report.
Result<LongRunReport> run_long(EngineImpl& engine,
                               const PromptSet& set,
                               const LongRunOptions& options);

}  // namespace kakeya::eval
