// Bounded memory, what is found in it and how fast it decodes, in one run beside all rows and no
// drafts.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "eval/bounded/bounded_report.h"
#include "eval/prompts/needle_prompts.h"
#include "kakeya/engine.h"
#include "kakeya/status.h"

namespace kakeya::eval {

struct BoundedRun {
  SessionOptions plain = {};    // drafts nothing
  SessionOptions bounded = {};  // as flags have it
  std::function<std::string(std::span<const TokenId>)> hash = {};
  // Called with the tokens of prompts that were run and those to be run; may be empty.
  std::function<void(std::int64_t done, std::int64_t total)> on_progress = {};
};

// Asks for the needles of `prompts`, all of `length` tokens, greedily: each is run once both ways,
// and the replies are decoded `pairs` times by forks, in alternating order. Errors: of the
// sessions, with the prompt's depth; kInternal if a way gives another reply in another pair.
Result<BoundedLength> evaluate_bounded(Engine& engine,
                                       std::span<const NeedlePrompt> prompts,
                                       std::int64_t length,
                                       const BoundedOptions& options,
                                       const BoundedRun& run);

}  // namespace kakeya::eval
