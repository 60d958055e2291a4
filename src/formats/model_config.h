// The configuration of a decoder from config.json and generation_config.json: one validated struct
// for all families (formats/families.h). Field names are the Hugging Face ones. Weights are not
// looked at here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya {

// The families of formats/families.h, which has a row for each.
enum class Architecture : std::uint8_t { kGemma4, kQwen3, kLlama, kGemma3, kQwen2, kQwen3Moe };

enum class LayerType : std::uint8_t { kSliding, kFull };

enum class Activation : std::uint8_t { kGeluTanh, kSilu };

// The scaling of type "llama3", of a frequency f with the wave length w = 2 pi / f and L =
// original_max_position_embeddings: f where w < L / high_freq_factor, f / factor where
// w > L / low_freq_factor, and between them a mean of both that is linear in L / w.
// Source: transformers, _compute_llama3_parameters.
struct Llama3Scaling {
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position_embeddings = 0;

  bool operator==(const Llama3Scaling&) const = default;
};

// The number by which a frequency is divided then, as GGUF files hold it.
float llama3_divisor(const Llama3Scaling& scaling, double frequency);

// Frequencies of one kind of layer: theta^(-2i / head_dim) / factor for the first
// partial_rotary_factor * head_dim / 2 pairs, 0 for the rest (networks of type "proportional").
struct RopeParameters {
  double rope_theta = 10000.0;
  double partial_rotary_factor = 1.0;
  double factor = 1.0;
  std::optional<Llama3Scaling> llama3 = std::nullopt;
  // By pair, what the frequency is divided by besides; empty: 1. Of GGUF files only.
  std::vector<float> divisors = {};

  bool operator==(const RopeParameters&) const = default;
};

// By pair of a head, the number by which the frequency theta^(-2i / head_dim) is divided in place
// of the factor: of Llama 3's scaling, or a GGUF file's own; empty: the factor.
std::vector<float> rope_divisors(const RopeParameters& rope, std::int64_t head_dim);

struct ModelConfig {
  Architecture architecture = Architecture::kGemma4;
  std::string model_type;

  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;        // D
  std::int64_t intermediate_size = 0;  // F of the dense MLP
  std::int64_t num_hidden_layers = 0;  // L
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;                    // sliding layers
  std::int64_t global_head_dim = 0;             // full layers
  std::int64_t num_global_key_value_heads = 0;  // full layers; resolved, never 0 after parsing
  std::int64_t max_position_embeddings = 0;
  std::int64_t sliding_window = 0;     // counts the query itself; 0 if no sliding layer
  std::vector<LayerType> layer_types;  // size L

  float rms_norm_eps = 1e-6F;
  float final_logit_softcapping = 0.0F;  // 0: none
  Activation hidden_activation = Activation::kGeluTanh;
  bool tie_word_embeddings = true;
  bool attention_k_eq_v = false;
  bool qkv_bias = false;               // of the projections of queries, keys and values
  bool o_bias = false;                 // of attention's output
  bool mlp_bias = false;               // of gate, up and down
  double query_pre_attn_scalar = 0.0;  // of scores; 0: the head dimension
  RopeParameters rope_sliding;
  RopeParameters rope_full;

  bool enable_moe_block = false;
  std::int64_t num_experts = 0;  // X
  std::int64_t top_k_experts = 0;
  std::int64_t moe_intermediate_size = 0;

  std::int64_t hidden_size_per_layer_input = 0;  // 0: not an E-model
  std::int64_t vocab_size_per_layer_input = 0;
  std::int64_t num_kv_shared_layers = 0;
  bool use_double_wide_mlp = false;

  std::vector<TokenId> eos_token_ids;
  std::optional<TokenId> bos_token_id;
  std::optional<TokenId> pad_token_id;

  // Derived, by layer index 0..L-1.
  bool is_sliding(std::int64_t layer) const;
  std::int64_t layer_head_dim(std::int64_t layer) const;
  std::int64_t layer_kv_heads(std::int64_t layer) const;
  // True if the layer projects its own keys and values (false: it reads those of kv_source_layer).
  bool owns_kv(std::int64_t layer) const;
  // The layer whose stored keys and values this layer attends to; itself when it owns them.
  std::int64_t kv_source_layer(std::int64_t layer) const;
  // Values are the raw keys (no v_proj tensor): attention_k_eq_v and a full layer.
  bool values_are_keys(std::int64_t layer) const;
  std::int64_t layer_intermediate_size(std::int64_t layer) const;
  // The factor of scores.
  float attention_scale(std::int64_t layer) const;
};

// generation_config.json: what the publisher recommends for sampling.
struct GenerationConfig {
  bool do_sample = false;
  std::optional<float> temperature;
  std::optional<int> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::vector<TokenId> eos_token_ids;
  std::vector<TokenId> suppress_tokens;
};

// A multimodal configuration is read through its text_config, a text one directly; unknown keys are
// tolerated. A value that parses is consistent: sizes are bounded, heads divide, every layer that
// shares keys and values has a layer to read from, and the parameter count fits into 2^50.
// Errors: kInvalidArgument for malformed JSON or an impossible value (which field, expected, got)
// and for the configuration of a drafter; kUnimplemented for an architecture, an activation, a RoPE
// type or a quantisation that is not supported.
Result<ModelConfig> parse_model_config(std::string_view json);
// Errors: kInvalidArgument as above.
Result<GenerationConfig> parse_generation_config(std::string_view json);

// Reads DIR/config.json, or what a GGUF file says instead. Errors as above and kNotFound, with the
// path; those of read_gguf_model_config().
Result<ModelConfig> load_model_config(const std::string& dir);
// Reads DIR/generation_config.json, or the same of a GGUF file; an absent file gives the defaults.
Result<GenerationConfig> load_generation_config(const std::string& dir);

}  // namespace kakeya
