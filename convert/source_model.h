// A model or a drafter that is to be converted: its configuration and its tensors by their names in
// Hugging Face checkpoints, whatever the file calls them and however it codes them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/tensor_rows.h"
#include "formats/drafter_config.h"
#include "formats/gguf_checkpoint.h"
#include "formats/model_config.h"
#include "formats/safetensors.h"
#include "kakeya/status.h"

namespace kakeya {

// The suffix of names of weights, but for those of experts.
inline constexpr std::string_view kWeightSuffix = ".weight";

struct NamedTensor {
  std::string name;  // without prefix, for example "layers.0.experts.gate_up_proj"
  TensorRows rows;
  // As in TensorSpec: how safetensors and GGUF files differ from these rows.
  float less = 0.0F;
  std::int64_t paired_rows = 0;

  // The rows as such files hold them.
  TensorRows rows_of_safetensors() const;
  TensorRows rows_of_gguf() const;
};

// Move-only; thread-safe for reading. What the tensors refer to lives as long.
struct SourceModel {
  std::string path;
  std::string name;                              // the folder's, or what the GGUF file says
  std::string config_json;                       // of a GGUF file one that says the same
  ModelConfig config;                            // of a drafter its layers
  std::optional<DrafterConfig> drafter;          // if it is one
  std::shared_ptr<const Checkpoint> checkpoint;  // of a folder
  std::shared_ptr<const GgufCheckpoint> gguf;    // of a GGUF file
  std::vector<NamedTensor> tensors;  // what the network uses, in the order of the layers

  std::uint64_t stored_bytes() const;
  std::int64_t parameters() const;
};

// Opens the folder of a model or a drafter, in its original form or in MLX's, or a GGUF file of
// one. What such a file holds in F32 by convention counts as the type of the largest tensor, where
// that holds all its numbers. Errors: those of load_model_config(), load_drafter_config(),
// Checkpoint::open(), GgufCheckpoint::open() and resolve_tensors().
Result<SourceModel> open_source_model(const std::string& path);

// The tensor with most bytes: what its type is, the model's is. There must be one.
const NamedTensor& largest_tensor(const SourceModel& model);

// Errors: kInvalidArgument if a tensor is quantised: what is lost twice is not to be got back.
Status check_unquantized(const SourceModel& model);

}  // namespace kakeya
