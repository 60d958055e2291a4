#include "convert/gguf_metadata.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "formats/families.h"
#include "formats/gguf_names.h"

namespace kakeya {

namespace {

// The version of the block formats.
constexpr std::uint32_t kQuantizationVersion = 2;

class MetadataList {
 public:
  explicit MetadataList(GgufArchitecture architecture)
      : architecture_(gguf_architecture_name(architecture)) {}

  void add_general(const std::string& name, std::uint32_t file_type) {
    add("general.architecture", architecture_);
    add("general.type", std::string("model"));
    add("general.name", name);
    add("general.file_type", file_type);
    add("general.quantization_version", kQuantizationVersion);
  }

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

void add_sizes(const ModelConfig& config, MetadataList& list) {
  list.own_size("block_count", config.num_hidden_layers);
  list.own_size("context_length", config.max_position_embeddings);
  list.own_size("embedding_length", config.hidden_size);
  list.own_size("attention.head_count", config.num_attention_heads);
  list.own("attention.layer_norm_rms_epsilon", config.rms_norm_eps);
  list.own("rope.freq_base", static_cast<float>(config.rope_full.rope_theta));
  if (config.rope_full.factor == 1.0) return;
  list.own("rope.scaling.type", std::string("linear"));
  list.own("rope.scaling.factor", static_cast<float>(config.rope_full.factor));
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

void add_windows(const ModelConfig& config, MetadataList& list) {
  list.own_size("attention.sliding_window", config.sliding_window);
  std::vector<bool> sliding;
  for (const LayerType type : config.layer_types) sliding.push_back(type == LayerType::kSliding);
  list.own("attention.sliding_window_pattern", std::move(sliding));
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
  add_windows(config, list);
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

// Adds the keys of the layers of all families but Gemma 4, and of drafters.
void add_plain_layers(const ModelConfig& config, MetadataList& list) {
  list.own_size("feed_forward_length", config.intermediate_size);
  list.own_size("attention.head_count_kv", config.num_key_value_heads);
  list.own_size("attention.key_length", config.head_dim);
  list.own_size("attention.value_length", config.head_dim);
}

void add_plain_model(const ModelConfig& config, MetadataList& list) {
  add_plain_layers(config, list);
  const Windows windows = family_of(config.architecture).windows;
  if (config.sliding_window > 0 && windows == Windows::kByLayerType) {
    add_windows(config, list);
    list.own("rope.freq_base_swa", static_cast<float>(config.rope_sliding.rope_theta));
  } else if (config.sliding_window > 0) {
    list.own_size("attention.sliding_window", config.sliding_window);
  }
  const auto plain = static_cast<double>(config.head_dim);
  if (config.query_pre_attn_scalar != 0.0 && config.query_pre_attn_scalar != plain) {
    list.own("attention.scale", config.attention_scale(0));
  }
  if (config.final_logit_softcapping > 0.0F) {
    list.own("final_logit_softcapping", config.final_logit_softcapping);
  }
  if (!config.enable_moe_block) {
    list.own_size("rope.dimension_count", config.head_dim);
    return;
  }
  list.own_size("expert_count", config.num_experts);
  list.own_size("expert_used_count", config.top_k_experts);
  list.own_size("expert_feed_forward_length", config.moe_intermediate_size);
}

void add_dflash(const DrafterConfig& config, MetadataList& list) {
  const ModelConfig& layers = config.layers;
  add_plain_layers(layers, list);
  if (layers.sliding_window > 0) add_windows(layers, list);
  list.own_size("block_size", config.block_size);
  // Counted from the embedding, which is 0.
  std::vector<std::int32_t> taps;
  for (const std::int64_t tap : config.target_layer_ids) {
    taps.push_back(static_cast<std::int32_t>(tap + 1));
  }
  list.own("target_layers", std::move(taps));
  if (config.has_selector()) {
    list.own_size("conv_kernel_size", config.conv_kernel_size);
    list.own_size("conv_group_size", config.conv_group_size);
    list.own_size("selector_rank", config.selector_rank);
    list.own_size("selector_top_k", config.selector_top_k);
  }
  if (config.output_multiplier != 1.0F) list.own("logit_scale", config.output_multiplier);
  if (layers.final_logit_softcapping > 0.0F) {
    list.own("final_logit_softcapping", layers.final_logit_softcapping);
  }
  if (config.input_embedding_scale) list.own("embedding_scale", *config.input_embedding_scale);
  if (config.is_causal) list.own("attention.causal", *config.is_causal);
}

// Files say of all layers, or of full layers alone, that they are scaled.
Status check_rope(const ModelConfig& config) {
  const bool own_base = family_of(config.architecture).defaults.rope_local_base_freq != 0.0;
  const RopeParameters& full = config.rope_full;
  const RopeParameters& sliding = config.rope_sliding;
  const bool plain = sliding.factor == 1.0 && !sliding.llama3 && sliding.divisors.empty();
  const bool same = sliding.factor == full.factor && sliding.llama3 == full.llama3 &&
                    sliding.divisors == full.divisors;
  const bool gemma4 = config.architecture == Architecture::kGemma4;
  if (gemma4 ? plain && full.factor == 1.0 : (own_base ? plain : same)) return {};
  return error(StatusCode::kUnimplemented, "scaled RoPE of this kind is not written to GGUF files");
}

}  // namespace

Result<std::vector<GgufMetadata>> gguf_model_metadata(const ModelConfig& config,
                                                      const std::string& name,
                                                      std::uint32_t file_type) {
  KAKEYA_TRY(check_rope(config));
  const bool gemma4 = config.architecture == Architecture::kGemma4;
  MetadataList list(gguf_architecture_of(config.architecture));
  list.add_general(name, file_type);
  add_sizes(config, list);
  gemma4 ? add_gemma4(config, list) : add_plain_model(config, list);
  return list.take();
}

Result<std::vector<GgufMetadata>> gguf_drafter_metadata(const DrafterConfig& config,
                                                        const std::string& name,
                                                        std::uint32_t file_type) {
  KAKEYA_TRY(check_rope(config.layers));
  MetadataList list(GgufArchitecture::kDflash);
  list.add_general(name, file_type);
  add_sizes(config.layers, list);
  add_dflash(config, list);
  return list.take();
}

std::vector<float> gguf_rope_factors(const ModelConfig& config) {
  const auto pairs = static_cast<std::size_t>(config.global_head_dim / 2);
  if (config.architecture != Architecture::kGemma4) {
    return rope_divisors(config.rope_full, config.global_head_dim);
  }
  const double turning = static_cast<double>(pairs) * config.rope_full.partial_rotary_factor;
  std::vector<float> factors(pairs, 1e30F);
  std::fill_n(factors.begin(), std::min(static_cast<std::size_t>(turning), pairs), 1.0F);
  return factors;
}

}  // namespace kakeya
