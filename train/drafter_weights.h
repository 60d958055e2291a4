// The numbers that a drafter's training changes, by their names in a checkpoint.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/drafter_config.h"
#include "kakeya/status.h"
#include "model/tensor_source.h"
#include "tensor/tensor_view.h"

namespace kakeya::train {

struct DrafterTensor {
  std::string name;  // as expected_tensors() gives it
  Shape shape;
  std::vector<float> values;  // row-major
};

// Every tensor that training changes, in the order of expected_tensors().
using DrafterWeights = std::vector<DrafterTensor>;

// Reads the weights of a folder in f32. Errors: as CheckpointSource::open, and kDataLoss for
// numbers that are not finite.
Result<DrafterWeights> read_drafter_weights(const std::string& dir, const DrafterConfig& config);

// Matrices uniform with a variance of 1 / inputs, those that end a branch (o_proj, down_proj) less
// by the square root of the number of branches; norms 1, but the final one `last_norm`. The same
// seed gives the same numbers.
DrafterWeights random_drafter_weights(const DrafterConfig& config,
                                      std::uint64_t seed,
                                      float last_norm = 1.0F);

// DIR/model.safetensors in bf16, each number the nearest; complete or not at all. Errors:
// kUnavailable if the disk refuses.
Status write_drafter_weights(const std::string& dir, const DrafterWeights& weights);

// A tensor of a source in f32. Errors: of the source and of to_f32().
Result<DrafterTensor> read_f32(TensorSource& source, const std::string& name);

}  // namespace kakeya::train
