// A projection as a folder that the engine loads: f_theta_config.json and model.safetensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/projection_config.h"
#include "kakeya/status.h"

namespace kakeya::train {

// All matrices of a projection, in f32 and row-major, in the order of expected_tensors().
using ProjectionWeights = std::vector<std::vector<float>>;

// The config of a projection of this rank for a model and its drafter.
ProjectionConfig make_projection_config(const ModelConfig& target,
                                        const DrafterConfig& drafter,
                                        ProjectionFeatures features,
                                        std::int64_t rank);

// All matrices zero: rows made by it are, too.
ProjectionWeights zero_weights(const ProjectionConfig& config);

// Writes or replaces both files in an existing folder. `fitted`: the layers that the codes are made
// for, which the config says to whoever reads it. Errors: kUnavailable if the disk refuses.
Status write_projection(const std::string& folder,
                        const ProjectionConfig& config,
                        const std::vector<std::int64_t>& fitted,
                        const ProjectionWeights& weights);

// Writes or replaces a file in one step. Errors: kUnavailable.
Status write_file(const std::string& path, std::string_view text);

}  // namespace kakeya::train
