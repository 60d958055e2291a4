#include "convert/gguf_metadata.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace kakeya {

namespace {

// The version of the block formats.
constexpr std::uint32_t kQuantizationVersion = 2;

class MetadataList {
 public:
  explicit MetadataList(std::string architecture) : architecture_(std::move(architecture)) {}

  void add(std::string key, GgufMetadataValue value) {
    entries_.push_back({std::move(key), std::move(value)});
  }
  // A key of the architecture.
  void own(std::string_view key, GgufMetadataValue value) {
    add(fmt::format("{}.{}", architecture_, key), std::move(value));
  }
  void own_size(std::string_view key, std::int64_t value) {
    own(key, static_cast<std::uint32_t>(value));
  }

  std::vector<GgufMetadata> take() { return std::move(entries_); }

 private:
  std::string architecture_;
  std::vector<GgufMetadata> entries_;
};

void add_general(const std::string& architecture,
                 const std::string& name,
                 std::uint32_t file_type,
                 MetadataList& list) {
  list.add("general.architecture", architecture);
  list.add("general.type", std::string("model"));
  list.add("general.name", name);
  list.add("general.file_type", file_type);
  list.add("general.quantization_version", kQuantizationVersion);
}

void add_sizes(const ModelConfig& config, MetadataList& list) {
  list.own_size("block_count", config.num_hidden_layers);
  list.own_size("context_length", config.max_position_embeddings);
  list.own_size("embedding_length", config.hidden_size);
  list.own_size("attention.head_count", config.num_attention_heads);
  list.own("attention.layer_norm_rms_epsilon", config.rms_norm_eps);
  list.own("rope.freq_base", static_cast<float>(config.rope_full.rope_theta));
}

// The sizes of each layer, as int32: a fact of the format.
template <typename SizeOf>
std::vector<std::int32_t> by_layer(const ModelConfig& config, SizeOf size_of) {
  std::vector<std::int32_t> sizes;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    sizes.push_back(static_cast<std::int32_t>(size_of(layer)));
  }
  return sizes;
}

void add_gemma4_attention(const ModelConfig& config, MetadataList& list) {
  list.own("attention.head_count_kv",
           by_layer(config, [&](std::int64_t layer) { return config.layer_kv_heads(layer); }));
  list.own_size("attention.key_length", config.global_head_dim);
  list.own_size("attention.value_length", config.global_head_dim);
  list.own_size("attention.key_length_swa", config.head_dim);
  list.own_size("attention.value_length_swa", config.head_dim);
  list.own_size("rope.dimension_count", config.global_head_dim);
  list.own_size("rope.dimension_count_swa", config.head_dim);
  list.own("rope.freq_base_swa", static_cast<float>(config.rope_sliding.rope_theta));
  list.own_size("attention.sliding_window", config.sliding_window);
  std::vector<bool> sliding;
  for (const LayerType type : config.layer_types) sliding.push_back(type == LayerType::kSliding);
  list.own("attention.sliding_window_pattern", sliding);
  list.own_size("attention.shared_kv_layers", config.num_kv_shared_layers);
}

void add_gemma4(const ModelConfig& config, MetadataList& list) {
  add_gemma4_attention(config, list);
  if (config.use_double_wide_mlp) {
    list.own("feed_forward_length", by_layer(config, [&](std::int64_t layer) {
               return config.layer_intermediate_size(layer);
             }));
  } else {
    list.own_size("feed_forward_length", config.intermediate_size);
  }
  list.own("final_logit_softcapping", config.final_logit_softcapping);
  list.own_size("embedding_length_per_layer_input", config.hidden_size_per_layer_input);
  if (!config.enable_moe_block) return;
  list.own_size("expert_count", config.num_experts);
  list.own_size("expert_used_count", config.top_k_experts);
  list.own_size("expert_feed_forward_length", config.moe_intermediate_size);
}

void add_qwen3(const ModelConfig& config, MetadataList& list) {
  list.own_size("feed_forward_length", config.intermediate_size);
  list.own_size("attention.head_count_kv", config.num_key_value_heads);
  list.own_size("attention.key_length", config.head_dim);
  list.own_size("attention.value_length", config.head_dim);
}

}  // namespace

Result<std::vector<GgufMetadata>> gguf_model_metadata(const SourceModel& model,
                                                      const std::string& name,
                                                      std::uint32_t file_type) {
  const ModelConfig& config = model.config;
  if (model.drafter) {
    return error(StatusCode::kUnimplemented, "{}: drafters are not written as GGUF files",
                 model.path);
  }
  if (config.rope_full.factor != 1.0 || config.rope_sliding.factor != 1.0) {
    return error(StatusCode::kUnimplemented, "{}: scaled RoPE is not written to GGUF files",
                 model.path);
  }
  const bool gemma4 = config.architecture == Architecture::kGemma4;
  const std::string architecture = gemma4 ? "gemma4" : "qwen3";
  MetadataList list(architecture);
  add_general(architecture, name, file_type, list);
  add_sizes(config, list);
  gemma4 ? add_gemma4(config, list) : add_qwen3(config, list);
  return list.take();
}

std::vector<float> gguf_rope_factors(const SourceModel& model) {
  if (model.config.architecture != Architecture::kGemma4) return {};
  const auto pairs = static_cast<std::size_t>(model.config.global_head_dim / 2);
  const double turning = static_cast<double>(pairs) * model.config.rope_full.partial_rotary_factor;
  std::vector<float> factors(pairs, 1e30F);
  std::fill_n(factors.begin(), std::min(static_cast<std::size_t>(turning), pairs), 1.0F);
  return factors;
}

}  // namespace kakeya
