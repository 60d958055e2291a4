// What `kakeya inspect` says of a folder of a model or a drafter, or of a weight file. Reads
// headers and configurations, never the weights.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "formats/drafter_config.h"
#include "formats/model_config.h"
#include "formats/model_tensors.h"
#include "formats/safetensors.h"
#include "kakeya/status.h"

namespace kakeya::cli {

struct InspectReport {
  Checkpoint checkpoint;
  // Of a folder whose config.json is that of a supported model.
  std::optional<ModelConfig> config;
  ParameterCount parameters;  // if there is a config
  // Of a folder whose config.json is that of a supported drafter.
  std::optional<DrafterConfig> drafter;
  std::int64_t drafter_parameters = 0;  // if there is a drafter
  // Why config.json cannot be used or the tensors do not fit it; empty if there is nothing to say.
  std::string problem;
};

// Errors: those of Checkpoint::open. A configuration that cannot be used is part of the report.
Result<InspectReport> inspect(const std::string& path);

// For people: a summary, then one line a tensor.
std::string to_text(const InspectReport& report);

nlohmann::ordered_json to_json(const InspectReport& report);

}  // namespace kakeya::cli
