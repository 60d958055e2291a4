#include "gguf_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace kakeya::peers {

namespace {

// Kinds of tokens in a file's list.
constexpr std::int32_t kText = 1;
constexpr std::int32_t kControl = 3;
constexpr std::int32_t kByte = 6;

constexpr float kNoRotation = 1e30F;

class MetadataList {
 public:
  explicit MetadataList(std::string architecture) : architecture_(std::move(architecture)) {
    entries_.push_back({"general.architecture", architecture_});
  }

  // A key of the architecture.
  void add(const char* name, GgufMetadataValue value) {
    entries_.push_back({fmt::format("{}.{}", architecture_, name), std::move(value)});
  }
  void add_size(const char* name, std::int64_t value) {
    add(name, static_cast<std::uint32_t>(value));
  }
  void add_general(const char* key, GgufMetadataValue value) {
    entries_.push_back({key, std::move(value)});
  }

  std::vector<GgufMetadata> take() { return std::move(entries_); }

 private:
  std::string architecture_;
  std::vector<GgufMetadata> entries_;
};

std::uint32_t id_or(std::optional<TokenId> id, std::uint32_t fallback) {
  return id ? static_cast<std::uint32_t>(*id) : fallback;
}

// Special tokens, all bytes, the alphabet with one merge, and then names that no text has.
void add_vocabulary(const ModelConfig& config, MetadataList& list) {
  const auto size = static_cast<std::size_t>(config.vocab_size);
  std::vector<std::string> tokens = {"<pad>", "<eos>", "<bos>", "<unk>", "<mask>"};
  std::vector<std::int32_t> types(tokens.size(), kControl);
  const auto add = [&](std::string token, std::int32_t type) {
    tokens.push_back(std::move(token));
    types.push_back(type);
  };
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), kByte);
  for (char letter = 'a'; letter <= 'z'; ++letter) add(std::string(1, letter), kText);
  add("ab", kText);
  while (tokens.size() < size) add(fmt::format("<unused{}>", tokens.size()), kText);
  tokens.resize(size);
  types.resize(size);
  list.add_general("tokenizer.ggml.model", "gemma4");
  list.add_general("tokenizer.ggml.tokens", std::move(tokens));
  list.add_general("tokenizer.ggml.scores", std::vector<float>(size, 0.0F));
  list.add_general("tokenizer.ggml.token_type", std::move(types));
  list.add_general("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  list.add_general("tokenizer.ggml.bos_token_id", id_or(config.bos_token_id, 2));
  list.add_general("tokenizer.ggml.eos_token_id", std::uint32_t{1});
  list.add_general("tokenizer.ggml.unknown_token_id", std::uint32_t{3});
  list.add_general("tokenizer.ggml.padding_token_id", id_or(config.pad_token_id, 0));
  list.add_general("tokenizer.ggml.add_bos_token", true);
  list.add_general("tokenizer.ggml.add_space_prefix", false);
}

template <typename T, typename Value>
std::vector<T> by_layer(const ModelConfig& config, Value&& value) {
  std::vector<T> values;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    values.push_back(static_cast<T>(value(layer)));
  }
  return values;
}

std::vector<bool> sliding_layers(const ModelConfig& config) {
  return by_layer<bool>(config, [&](std::int64_t layer) { return config.is_sliding(layer); });
}

void add_sizes(const ModelConfig& config, MetadataList& list) {
  list.add_size("block_count", config.num_hidden_layers);
  list.add_size("context_length", config.max_position_embeddings);
  list.add_size("embedding_length", config.hidden_size);
  list.add_size("attention.head_count", config.num_attention_heads);
  list.add("attention.layer_norm_rms_epsilon", config.rms_norm_eps);
}

void add_gemma4(const ModelConfig& config, MetadataList& list) {
  add_sizes(config, list);
  list.add("feed_forward_length", by_layer<std::int32_t>(config, [&](std::int64_t layer) {
             return config.layer_intermediate_size(layer);
           }));
  list.add("attention.head_count_kv", by_layer<std::int32_t>(config, [&](std::int64_t layer) {
             return config.layer_kv_heads(layer);
           }));
  list.add_size("attention.key_length", config.global_head_dim);
  list.add_size("attention.value_length", config.global_head_dim);
  list.add_size("attention.key_length_swa", config.head_dim);
  list.add_size("attention.value_length_swa", config.head_dim);
  list.add_size("attention.sliding_window", config.sliding_window);
  list.add("attention.sliding_window_pattern", sliding_layers(config));
  list.add_size("attention.shared_kv_layers", config.num_kv_shared_layers);
  list.add_size("rope.dimension_count", config.global_head_dim);
  list.add_size("rope.dimension_count_swa", config.head_dim);
  list.add("rope.freq_base", static_cast<float>(config.rope_full.rope_theta));
  list.add("rope.freq_base_swa", static_cast<float>(config.rope_sliding.rope_theta));
  list.add_size("embedding_length_per_layer_input", config.hidden_size_per_layer_input);
  if (config.final_logit_softcapping > 0.0F) {
    list.add("final_logit_softcapping", config.final_logit_softcapping);
  }
  if (!config.enable_moe_block) return;
  list.add_size("expert_count", config.num_experts);
  list.add_size("expert_used_count", config.top_k_experts);
  list.add_size("expert_feed_forward_length", config.moe_intermediate_size);
}

void add_dflash(const DrafterConfig& config, const ModelConfig& target, MetadataList& list) {
  const ModelConfig& layers = config.layers;
  add_sizes(layers, list);
  list.add_size("feed_forward_length", layers.intermediate_size);
  list.add_size("attention.head_count_kv", layers.num_key_value_heads);
  list.add_size("attention.key_length", layers.head_dim);
  list.add_size("attention.value_length", layers.head_dim);
  list.add_size("rope.dimension_count", layers.head_dim);
  list.add("rope.freq_base", static_cast<float>(layers.rope_full.rope_theta));
  if (layers.sliding_window > 0) {
    list.add_size("attention.sliding_window", layers.sliding_window);
    list.add("attention.sliding_window_pattern", sliding_layers(layers));
  }
  list.add_size("block_size", config.block_size);
  // Counted from the embedding, which is 0.
  std::vector<std::int32_t> taps;
  for (const std::int64_t tap : config.target_layer_ids) {
    taps.push_back(static_cast<std::int32_t>(tap + 1));
  }
  list.add("target_layers", std::move(taps));
  if (config.output_multiplier != 1.0F) list.add("logit_scale", config.output_multiplier);
  if (layers.final_logit_softcapping > 0.0F) {
    list.add("final_logit_softcapping", layers.final_logit_softcapping);
  }
  if (config.input_embedding_scale) list.add("embedding_scale", *config.input_embedding_scale);
  if (config.is_causal) list.add("attention.causal", *config.is_causal);
  add_vocabulary(target, list);
  list.add_general("tokenizer.ggml.mask_token_id",
                   static_cast<std::uint32_t>(config.mask_token_id));
}

Status check_architecture(const ModelConfig& config) {
  if (config.architecture == Architecture::kGemma4) return {};
  return error(StatusCode::kUnimplemented,
               "GGUF files for comparisons are written of Gemma 4 models, got {}",
               config.model_type);
}

}  // namespace

Result<std::vector<GgufMetadata>> model_metadata(const ModelConfig& config) {
  KAKEYA_TRY(check_architecture(config));
  MetadataList list("gemma4");
  add_gemma4(config, list);
  add_vocabulary(config, list);
  return list.take();
}

Result<std::vector<GgufMetadata>> drafter_metadata(const DrafterConfig& config,
                                                   const ModelConfig& target) {
  KAKEYA_TRY(check_architecture(target));
  MetadataList list("dflash");
  add_dflash(config, target, list);
  return list.take();
}

std::vector<float> rope_factors(const ModelConfig& config) {
  const auto pairs = static_cast<std::size_t>(config.global_head_dim / 2);
  const auto rotating = static_cast<std::size_t>(config.rope_full.partial_rotary_factor *
                                                 static_cast<double>(config.global_head_dim) / 2.0);
  std::vector<float> factors(pairs, kNoRotation);
  std::fill_n(factors.begin(), std::min(rotating, pairs), 1.0F);
  return factors;
}

}  // namespace kakeya::peers
