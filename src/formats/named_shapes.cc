#include "formats/named_shapes.h"

#include <fmt/ranges.h>

#include "base/status.h"

namespace kakeya {
namespace {

// The properties that differ between the Gemma 4 variants. Sizes: the published config.json files.
struct Gemma4Shape {
  std::string_view name;
  std::int64_t hidden_size;
  std::int64_t num_hidden_layers;
  std::int64_t sliding_layers_per_full;
  std::int64_t num_attention_heads;
  std::int64_t num_key_value_heads;
  std::int64_t num_global_key_value_heads;
  std::int64_t intermediate_size;
  std::int64_t sliding_window;
  std::int64_t max_position_embeddings;
  bool attention_k_eq_v;
  std::int64_t num_experts;
  std::int64_t hidden_size_per_layer_input;
  std::int64_t num_kv_shared_layers;
  bool use_double_wide_mlp;
};

constexpr Gemma4Shape kGemma4Shapes[] = {
    {"gemma4-26b-a4b", 2816, 30, 5, 16, 8, 2, 2112, 1024, 262144, true, 128, 0, 0, false},
    {"gemma4-31b", 5376, 60, 5, 32, 16, 4, 21504, 1024, 262144, true, 0, 0, 0, false},
    {"gemma4-12b", 3840, 48, 5, 16, 8, 1, 15360, 1024, 262144, true, 0, 0, 0, false},
    {"gemma4-e4b", 2560, 42, 5, 8, 2, 2, 10240, 512, 131072, false, 0, 256, 18, false},
    {"gemma4-e2b", 1536, 35, 4, 8, 1, 1, 6144, 512, 131072, false, 0, 256, 20, true},
};

struct Qwen3Shape {
  std::string_view name;
  std::int64_t hidden_size;
  std::int64_t num_hidden_layers;
  std::int64_t num_attention_heads;
  std::int64_t intermediate_size;
  bool tie_word_embeddings;
};

constexpr Qwen3Shape kQwen3Shapes[] = {
    {"qwen3-0.6b", 1024, 28, 16, 3072, true},
    {"qwen3-4b", 2560, 36, 32, 9728, true},
    {"qwen3-8b", 4096, 36, 32, 12288, false},
};

ModelConfig gemma4_config(const Gemma4Shape& shape) {
  ModelConfig config;
  config.architecture = Architecture::kGemma4;
  config.model_type = "gemma4_text";
  config.vocab_size = 262144;
  config.hidden_size = shape.hidden_size;
  config.intermediate_size = shape.intermediate_size;
  config.num_hidden_layers = shape.num_hidden_layers;
  config.num_attention_heads = shape.num_attention_heads;
  config.num_key_value_heads = shape.num_key_value_heads;
  config.num_global_key_value_heads = shape.num_global_key_value_heads;
  config.head_dim = 256;
  config.global_head_dim = 512;
  config.max_position_embeddings = shape.max_position_embeddings;
  config.sliding_window = shape.sliding_window;
  config.final_logit_softcapping = 30.0F;
  config.attention_k_eq_v = shape.attention_k_eq_v;
  config.rope_sliding = {.rope_theta = 1e4};
  config.rope_full = {.rope_theta = 1e6, .partial_rotary_factor = 0.25};
  config.enable_moe_block = shape.num_experts > 0;
  config.num_experts = shape.num_experts;
  config.top_k_experts = shape.num_experts > 0 ? 8 : 0;
  config.moe_intermediate_size = shape.num_experts > 0 ? 704 : 0;
  config.hidden_size_per_layer_input = shape.hidden_size_per_layer_input;
  config.vocab_size_per_layer_input = 262144;
  config.num_kv_shared_layers = shape.num_kv_shared_layers;
  config.use_double_wide_mlp = shape.use_double_wide_mlp;
  config.eos_token_ids = {1, 106, 50};
  config.bos_token_id = 2;
  config.pad_token_id = 0;
  for (std::int64_t l = 0; l < shape.num_hidden_layers; ++l) {
    const bool full = (l + 1) % (shape.sliding_layers_per_full + 1) == 0;
    config.layer_types.push_back(full ? LayerType::kFull : LayerType::kSliding);
  }
  return config;
}

ModelConfig qwen3_config(const Qwen3Shape& shape) {
  ModelConfig config;
  config.architecture = Architecture::kQwen3;
  config.model_type = "qwen3";
  config.vocab_size = 151936;
  config.hidden_size = shape.hidden_size;
  config.intermediate_size = shape.intermediate_size;
  config.num_hidden_layers = shape.num_hidden_layers;
  config.num_attention_heads = shape.num_attention_heads;
  config.num_key_value_heads = 8;
  config.num_global_key_value_heads = 8;
  config.head_dim = 128;
  config.global_head_dim = 128;
  config.max_position_embeddings = 40960;
  config.hidden_activation = Activation::kSilu;
  config.tie_word_embeddings = shape.tie_word_embeddings;
  config.rope_full = {.rope_theta = 1e6};
  config.rope_sliding = config.rope_full;
  config.layer_types.assign(static_cast<std::size_t>(shape.num_hidden_layers), LayerType::kFull);
  config.eos_token_ids = {151645, 151643};
  return config;
}

Status keep_layers(ModelConfig& config, std::string_view name, std::int64_t layers) {
  if (layers == 0) return {};
  if (layers < 0 || layers > config.num_hidden_layers) {
    return invalid_argument("{} has 1 to {} layers but {} were asked for", name,
                            config.num_hidden_layers, layers);
  }
  if (layers < config.num_hidden_layers && config.num_kv_shared_layers > 0) {
    return invalid_argument("{} shares keys and values between layers and cannot be cut", name);
  }
  config.num_hidden_layers = layers;
  config.layer_types.resize(static_cast<std::size_t>(layers));
  return {};
}

}  // namespace

std::vector<std::string_view> shape_names() {
  std::vector<std::string_view> names;
  for (const Gemma4Shape& shape : kGemma4Shapes) names.push_back(shape.name);
  for (const Qwen3Shape& shape : kQwen3Shapes) names.push_back(shape.name);
  return names;
}

Result<ModelConfig> named_shape(std::string_view name, std::int64_t layers) {
  std::optional<ModelConfig> config;
  for (const Gemma4Shape& shape : kGemma4Shapes) {
    if (shape.name == name) config = gemma4_config(shape);
  }
  for (const Qwen3Shape& shape : kQwen3Shapes) {
    if (shape.name == name) config = qwen3_config(shape);
  }
  if (!config) {
    return invalid_argument("named_shape::name must be one of {} but is '{}'",
                            fmt::join(shape_names(), ", "), name);
  }
  KAKEYA_TRY(keep_layers(*config, name, layers));
  return *std::move(config);
}

}  // namespace kakeya
