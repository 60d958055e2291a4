// The common part of the configurations of models and of drafters, read with the same rules and
// bounds: sizes, heads, activation, layer types and RoPE. Used by formats/model_config.cc and
// formats/drafter_config.cc only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/json_document.h"
#include "formats/model_config.h"

namespace kakeya {

inline constexpr IntegerRange kLayersRange = {1, 1024};
inline constexpr IntegerRange kWidthRange = {1, 1 << 22};
inline constexpr IntegerRange kVocabularyRange = {1, 1 << 24};
inline constexpr IntegerRange kPositionsRange = {1, 1 << 30};
inline constexpr NumberRange kSoftCapRange = {0.0, 1e6};

// Types of layers, as configurations name them.
inline constexpr const char* kSlidingName = "sliding_attention";
inline constexpr const char* kFullName = "full_attention";

// The text of a configuration file. Errors: kNotFound; kInvalidArgument if it is too large.
Result<std::string> read_config_file(const std::string& path);

// True if this is the configuration of a drafter: of DFlash or of a successor of it.
Result<bool> is_drafter(const JsonFields& root);

// Which tensors are quantised, and how, is seen by the tensors (formats/tensor_request.h).
// Errors: kUnimplemented for a way to quantise other than MLX's affine one.
Status check_quantization(const JsonFields& fields);

// Fills hidden_size, intermediate_size, num_hidden_layers and rms_norm_eps.
Status read_sizes(const JsonFields& text, ModelConfig& config);

// A size; `fallback` stands for a field that is not there, and 0 for none that could.
Result<std::int64_t> size_or_default(const JsonFields& text,
                                     std::string_view key,
                                     std::int64_t fallback,
                                     IntegerRange range);

// Fills hidden_activation. Needs architecture.
Status read_activation(const JsonFields& text, ModelConfig& config);

// Fills qkv_bias, o_bias and mlp_bias. Needs architecture.
Status read_biases(const JsonFields& text, ModelConfig& config);

// Whose layers are read: those of a drafter have Qwen3's shape but may slide.
enum class StackKind : std::uint8_t { kModel, kDrafter };

// Fills layer_types and sliding_window. Needs architecture, model_type and num_hidden_layers.
Status read_layer_types(const JsonFields& text, StackKind kind, ModelConfig& config);

// Fills the numbers of heads, their dimensions, query_pre_attn_scalar and attention_k_eq_v. Full
// layers have them in fields of their own, or in per_layer_config. Needs architecture,
// num_hidden_layers and layer_types.
Status read_heads(const JsonFields& text, ModelConfig& config);

// Fills rope_sliding and rope_full from rope_parameters (by layer type, or one for all) or from the
// older rope_theta and rope_scaling (formats/rope_config.cc). Needs architecture, layer_types and
// heads.
Status read_rope(const JsonFields& text, ModelConfig& config);

// Appends the ids that `target` does not hold yet.
void add_token_ids(const std::vector<std::int64_t>& ids, std::vector<TokenId>& target);

}  // namespace kakeya
