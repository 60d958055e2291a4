// The report of `kakeya inspect` on a folder of a model or a drafter, or on a weight file. Reads
// headers and configurations, never the weights.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "formats/drafter_config.h"
#include "formats/gguf_checkpoint.h"
#include "formats/model_config.h"
#include "formats/model_tensors.h"
#include "formats/safetensors.h"
#include "kakeya/status.h"

namespace kakeya::cli {

struct ModelSummary {
  // The configuration of a supported model.
  std::optional<ModelConfig> config;
  ParameterCount parameters;  // if there is a config
  // The configuration of a supported drafter.
  std::optional<DrafterConfig> drafter;
  std::int64_t drafter_parameters = 0;  // if there is a drafter
  // Why the configuration cannot be used or the tensors do not fit it; empty if there is nothing to
  // say.
  std::string problem;
};

// The summary of a GGUF file, opened with its parts.
ModelSummary summarize(const GgufCheckpoint& checkpoint);

// Lines for people, without the problem; fields of a JSON object, without it.
std::string summary_text(const ModelSummary& summary);
void add_summary(const ModelSummary& summary, nlohmann::ordered_json& json);

struct InspectReport : ModelSummary {  // empty for a file
  Checkpoint checkpoint;
};

// Errors: those of Checkpoint::open. A configuration that cannot be used is part of the report.
Result<InspectReport> inspect(const std::string& path);

// For people: a summary, then one line a tensor.
std::string to_text(const InspectReport& report);

nlohmann::ordered_json to_json(const InspectReport& report);

}  // namespace kakeya::cli
