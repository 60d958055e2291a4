// One pass of a drafter over given features of the target, for comparisons.
#pragma once

#include <cstdint>
#include <vector>

#include "model/dflash/dflash.h"
#include "runtime/engine_impl.h"

namespace kakeya::eval {

struct DrafterInput {
  std::vector<float> taps;     // [C, T * D]: the tapped layers' outputs at positions 0 ... C - 1
  std::int64_t context = 0;    // C, 1 or more
  std::vector<TokenId> block;  // [B]: the token at position C, then masks
};

struct DrafterOutput {
  std::vector<float> features;  // [C, D]: of the context
  std::vector<float> hidden;    // [B, D]: of the block, before the head
  std::vector<float> logits;    // [B, V]
};

// Runs context and block in one go, with memory of its own, on the engine's backend; keys and
// values are f32. Errors: kResourceExhausted; the backend's.
Result<DrafterOutput> run_drafter(EngineImpl& engine,
                                  const dflash::Drafter& drafter,
                                  const DrafterInput& input);

}  // namespace kakeya::eval
