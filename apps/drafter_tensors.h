// The drafter's numbers for given taps and a given block, for comparing with other implementations.
#pragma once

#include <string>
#include <vector>

#include "runtime/engine_impl.h"
#include "tensor/tensor_view.h"

namespace kakeya::cli {

// Named tensors with their memory.
struct NamedTensor {
  std::string name;
  Shape shape;
  std::vector<float> values;
};

// Reads `aux` [C, num_taps * D] and `block_ids` [B] from `path` and runs the engine's drafter over
// them with every mask rule: context_features [C, D], and MODE.hidden [B, D] and MODE.logits [B, V]
// for MODE bidirectional, auto, causal.
// Errors: kDataLoss and kInvalidArgument for the file (what, expected, got).
Result<std::vector<NamedTensor>> drafter_tensors(EngineImpl& engine, const std::string& path);

}  // namespace kakeya::cli
