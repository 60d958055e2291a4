// The time of decoding with keys and values kept in several ways, in turns.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "eval/kv/kv_eval.h"

namespace kakeya::eval {

struct KvModeTimes {
  std::string mode;
  std::vector<double> seconds = {};  // a sample each: KvLengthTimes::steps passes of one token
};

// Decoding behind `length` tokens.
struct KvLengthTimes {
  std::int64_t length = 0;
  std::int64_t steps = 0;
  std::vector<KvModeTimes> modes = {};  // in the order given

  // The median of a mode's times over those of the first one, the exact mode, of the same turn.
  double ratio(std::size_t mode) const;
};

// Runs the text once by each mode, then decodes on, some passes by each mode in turns, so many that
// the first mode takes about a fifth of a second. What comes behind the text is its own beginning.
// Errors: of the sessions, with the mode.
Result<KvLengthTimes> measure_kv_times(EngineImpl& engine,
                                       std::span<const KvMode> modes,
                                       std::span<const TokenId> text,
                                       const KvEvalOptions& options);

}  // namespace kakeya::eval
