// Which tensors a model of a given configuration has, by name and shape, and how many parameters
// that makes. Names are those of the Hugging Face checkpoints without their prefix. Reads no file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/model_config.h"
#include "kakeya/status.h"
#include "tensor/tensor_view.h"

namespace kakeya {

enum class TensorPresence : std::uint8_t {
  kRequired,
  kOptional,   // used if there, and then of this shape
  kRedundant,  // published checkpoints may hold it; the network does not use it
};

struct TensorSpec {
  std::string name;  // for example "layers.0.self_attn.q_proj.weight"
  Shape shape;
  TensorPresence presence = TensorPresence::kRequired;
  // How files differ: safetensors files hold the values less this, and GGUF files the rows of each
  // head of so many, E (0: in order), so that row 2 i + j stands for row j E / 2 + i.
  float less = 0.0F;
  std::int64_t paired_rows = 0;
};

// Every tensor of the text decoder, layer by layer. Projections are [out, in].
std::vector<TensorSpec> expected_tensors(const ModelConfig& config);

struct ParameterCount {
  std::int64_t total = 0;
  // The parameters that one decoded token reads: without the per-layer embedding table (one row of
  // it is read) and the experts that are not chosen.
  std::int64_t touched_per_token = 0;
};

// The parameters of the required tensors. Errors: kInvalidArgument if there are more than 2^50.
Result<std::int64_t> total_parameters(std::span<const TensorSpec> specs);

// Errors: as above.
Result<ParameterCount> parameter_count(const ModelConfig& config);

}  // namespace kakeya
