// Configurations of published models by name, for benchmarks on random weights and for the doctor's
// estimates: no download needed to know what a model costs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/model_config.h"

namespace kakeya {

// "gemma4-26b-a4b", "gemma4-31b", ...
std::vector<std::string_view> shape_names();

// The configuration; with layers > 0 only its first layers. Errors: kInvalidArgument for an unknown
// name (lists the known ones) or more layers than it has.
Result<ModelConfig> named_shape(std::string_view name, std::int64_t layers);

}  // namespace kakeya
