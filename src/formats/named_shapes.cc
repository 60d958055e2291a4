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

// Other families: what config.json says of the network, read as such files are.
struct ConfiguredShape {
  std::string_view name;
  std::string_view config_json;
};

constexpr ConfiguredShape kConfiguredShapes[] = {
    {"llama3.1-8b",
     R"({"model_type":"llama","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
     "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256,"rms_norm_eps":1e-5,
     "max_position_embeddings":131072,"rope_theta":5e5,"rope_scaling":{"rope_type":"llama3",
     "factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
     "original_max_position_embeddings":8192},"bos_token_id":128000,
     "eos_token_id":[128001,128008,128009]})"},
    {"tinyllama-1.1b",
     R"({"model_type":"llama","hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":22,
     "num_attention_heads":32,"num_key_value_heads":4,"vocab_size":32000,"rms_norm_eps":1e-5,
     "max_position_embeddings":2048,"bos_token_id":1,"eos_token_id":2})"},
    {"mistral-7b",
     R"({"model_type":"mistral","hidden_size":4096,"intermediate_size":14336,"vocab_size":32768,
     "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"rms_norm_eps":1e-5,
     "max_position_embeddings":32768,"rope_theta":1e6,"bos_token_id":1,"eos_token_id":2})"},
    {"smollm2-135m",
     R"({"model_type":"llama","hidden_size":576,"intermediate_size":1536,"num_hidden_layers":30,
     "num_attention_heads":9,"num_key_value_heads":3,"vocab_size":49152,"rms_norm_eps":1e-5,
     "max_position_embeddings":8192,"rope_theta":1e5,"tie_word_embeddings":true,
     "bos_token_id":1,"eos_token_id":2,"pad_token_id":2})"},
    {"qwen2.5-7b",
     R"({"model_type":"qwen2","hidden_size":3584,"intermediate_size":18944,"num_hidden_layers":28,
     "num_attention_heads":28,"num_key_value_heads":4,"vocab_size":152064,
     "max_position_embeddings":32768,"rope_theta":1e6,"eos_token_id":[151645,151643]})"},
    {"qwen3-30b-a3b",
     R"({"model_type":"qwen3_moe","hidden_size":2048,"intermediate_size":6144,"head_dim":128,
     "num_hidden_layers":48,"num_attention_heads":32,"num_key_value_heads":4,"vocab_size":151936,
     "num_experts":128,"num_experts_per_tok":8,"moe_intermediate_size":768,"norm_topk_prob":true,
     "max_position_embeddings":40960,"rope_theta":1e6,"eos_token_id":[151645,151643]})"},
    {"gemma3-270m",
     R"({"model_type":"gemma3_text","hidden_size":640,"intermediate_size":2048,
     "num_hidden_layers":18,"num_attention_heads":4,"num_key_value_heads":1,"vocab_size":262144,
     "sliding_window":512,"max_position_embeddings":32768,"eos_token_id":[1,106]})"},
    {"gemma3-1b",
     R"({"model_type":"gemma3_text","hidden_size":1152,"intermediate_size":6912,
     "num_hidden_layers":26,"num_attention_heads":4,"num_key_value_heads":1,"vocab_size":262144,
     "sliding_window":512,"max_position_embeddings":32768,"eos_token_id":[1,106]})"},
    {"gemma3-4b",
     R"({"model_type":"gemma3_text","hidden_size":2560,"intermediate_size":10240,
     "num_hidden_layers":34,"rope_scaling":{"rope_type":"linear","factor":8.0},
     "sliding_window":1024,"eos_token_id":[1,106]})"},
    {"gemma3-12b",
     R"({"model_type":"gemma3_text","hidden_size":3840,"intermediate_size":15360,
     "num_hidden_layers":48,"num_attention_heads":16,"num_key_value_heads":8,
     "rope_scaling":{"rope_type":"linear","factor":8.0},"sliding_window":1024,
     "eos_token_id":[1,106]})"},
    {"gemma3-27b",
     R"({"model_type":"gemma3_text","hidden_size":5376,"intermediate_size":21504,"head_dim":128,
     "num_hidden_layers":62,"num_attention_heads":32,"num_key_value_heads":16,
     "query_pre_attn_scalar":168,"rope_scaling":{"rope_type":"linear","factor":8.0},
     "sliding_window":1024,"eos_token_id":[1,106]})"},
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
  for (const ConfiguredShape& shape : kConfiguredShapes) names.push_back(shape.name);
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
  for (const ConfiguredShape& shape : kConfiguredShapes) {
    if (shape.name != name) continue;
    KAKEYA_ASSIGN_OR_RETURN(config, parse_model_config(shape.config_json));
  }
  if (!config) {
    return invalid_argument("named_shape::name must be one of {} but is '{}'",
                            fmt::join(shape_names(), ", "), name);
  }
  KAKEYA_TRY(keep_layers(*config, name, layers));
  return *std::move(config);
}

}  // namespace kakeya
