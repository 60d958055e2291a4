// Runs a text through a model and takes down what its weights are multiplied with.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/memory_budget.h"
#include "convert/importance.h"
#include "convert/tensor_encoder.h"
#include "kakeya/status.h"

namespace kakeya {

struct CalibrationOptions {
  BackendOptions backend = {};
  Compute compute = Compute::kFast;
  // Bytes of weights loaded, and in all; then tokens run, and in all.
  ProgressCallback on_load = {};
  ProgressCallback progress = {};
};

// The importance of every column of every matrix that the model multiplies: the mean over all
// tokens of the square of what is multiplied with it (activation_sums.h says what experts get that
// saw few tokens). A table that is only looked up has none; an embedding that is the head as well
// has the head's.
//
// `windows`: token ids, each window run from nothing; none is empty. Memory: the weights, one
// session of the longest window, its logits and 12 bytes for each column of each matrix, all
// charged to the budget; only the importance itself stays. Errors: of the folder, as Engine::open;
// kInvalidArgument for ids outside the vocabulary; kResourceExhausted; those of `progress`, and
// those of `on_load` once the weights are loaded.
Result<Importance> measure_importance(const std::string& model_dir,
                                      std::span<const std::vector<TokenId>> windows,
                                      const CalibrationOptions& options,
                                      MemoryBudget& budget);

}  // namespace kakeya
