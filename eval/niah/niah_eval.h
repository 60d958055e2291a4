// Needles in a haystack: asks a model for them, by length and depth, with keys and values kept in
// several ways.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/niah/niah_claims.h"
#include "eval/prompts/needle_prompts.h"
#include "eval/report/kv_modes.h"
#include "runtime/engine_impl.h"

namespace kakeya::eval {

struct NiahOptions {
  std::vector<KvMode> modes = {};
  // By the name that KvMode::projection has.
  std::map<std::string, std::shared_ptr<const Projection>> projections = {};
  std::int64_t max_tokens = 16;  // most tokens of a reply
  std::int64_t chunk = 64;       // tokens of a pass, 2 or more
  std::function<std::string(std::span<const TokenId>)> hash = {};
};

// A greedy reply. An error is part of what is returned.
NiahReply ask_for_needles(EngineImpl& engine,
                          const NeedlePrompt& prompt,
                          const KvMode& mode,
                          const NiahOptions& options);

}  // namespace kakeya::eval
