// GGUF models for tests: the tensors of a checkpoint folder under the names, and its configuration
// under the keys, that llama.cpp's converter gives them. Written from the configuration's side,
// apart from the code that reads it.
#pragma once

#include <gtest/gtest.h>

#include <list>
#include <string>
#include <utility>
#include <vector>

#include "formats/drafter_config.h"
#include "formats/gguf_names.h"
#include "formats/gguf_write.h"
#include "formats/safetensors.h"
#include "formats/tensor_request.h"

namespace kakeya {

inline std::uint32_t u32(std::int64_t value) {
  return static_cast<std::uint32_t>(value);
}

inline std::vector<bool> sliding_pattern(const ModelConfig& config) {
  std::vector<bool> pattern;
  for (const LayerType type : config.layer_types) pattern.push_back(type == LayerType::kSliding);
  return pattern;
}

// A file's content, which may be changed before it is written.
struct GgufContent {
  std::vector<GgufMetadata> metadata;
  std::vector<GgufTensorSource> tensors;
  std::list<std::vector<std::byte>> memory = {};  // of tensors; addresses stay

  void set(std::string key, GgufMetadataValue value) {
    erase(key);
    metadata.push_back({std::move(key), std::move(value)});
  }
  void erase(std::string_view key) {
    std::erase_if(metadata, [&](const GgufMetadata& each) { return each.key == key; });
  }
  GgufTensorSource& tensor(std::string_view name) {
    for (GgufTensorSource& each : tensors) {
      if (each.name == name) return each;
    }
    ADD_FAILURE() << "no tensor " << name;
    return tensors.front();
  }
  void erase_tensor(std::string_view name) {
    std::erase_if(tensors, [&](const GgufTensorSource& each) { return each.name == name; });
  }
  void add_tensor(std::string name,
                  Shape shape,
                  GgufEncoding encoding,
                  std::vector<std::byte> bytes) {
    memory.push_back(std::move(bytes));
    const std::vector<std::byte>& data = memory.back();
    tensors.push_back({std::move(name), std::move(shape), encoding,
                       [&data](const GgufSink& sink) { return sink(data); }});
  }
  void add_floats(std::string name, const std::vector<float>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    add_tensor(std::move(name), {std::ssize(values)}, DType::kF32, {bytes.begin(), bytes.end()});
  }
  std::string write(const std::string& path) const {
    const Status written = write_gguf(path, metadata, tensors);
    EXPECT_TRUE(written.has_value()) << written.error().message();
    return path;
  }
};

// The keys that all architectures share.
inline void add_common_keys(GgufContent& content,
                            const std::string& architecture,
                            const ModelConfig& config) {
  const auto key = [&](const char* name) { return architecture + "." + name; };
  content.set("general.architecture", architecture);
  content.set(key("block_count"), u32(config.num_hidden_layers));
  content.set(key("context_length"), u32(config.max_position_embeddings));
  content.set(key("embedding_length"), u32(config.hidden_size));
  content.set(key("feed_forward_length"), u32(config.intermediate_size));
  content.set(key("attention.head_count"), u32(config.num_attention_heads));
  content.set(key("attention.head_count_kv"), u32(config.num_key_value_heads));
  content.set(key("attention.layer_norm_rms_epsilon"), config.rms_norm_eps);
  content.set(key("attention.key_length"), u32(config.global_head_dim));
  content.set(key("attention.value_length"), u32(config.global_head_dim));
  content.set(key("rope.freq_base"), static_cast<float>(config.rope_full.rope_theta));
  if (config.bos_token_id) content.set("tokenizer.ggml.bos_token_id", u32(*config.bos_token_id));
  if (!config.eos_token_ids.empty()) {
    content.set("tokenizer.ggml.eos_token_id", u32(config.eos_token_ids.front()));
  }
}

inline void add_gemma4_keys(GgufContent& content, const ModelConfig& config) {
  std::vector<std::int32_t> kv_heads;
  std::vector<std::int32_t> widths;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    kv_heads.push_back(static_cast<std::int32_t>(config.layer_kv_heads(layer)));
    widths.push_back(static_cast<std::int32_t>(config.layer_intermediate_size(layer)));
  }
  content.set("gemma4.attention.head_count_kv", kv_heads);
  if (config.use_double_wide_mlp) content.set("gemma4.feed_forward_length", widths);
  content.set("gemma4.attention.sliding_window_pattern", sliding_pattern(config));
  content.set("gemma4.attention.sliding_window", u32(config.sliding_window));
  content.set("gemma4.attention.key_length_swa", u32(config.head_dim));
  content.set("gemma4.attention.value_length_swa", u32(config.head_dim));
  content.set("gemma4.attention.shared_kv_layers", u32(config.num_kv_shared_layers));
  content.set("gemma4.rope.freq_base_swa", static_cast<float>(config.rope_sliding.rope_theta));
  content.set("gemma4.rope.dimension_count", u32(config.global_head_dim));
  content.set("gemma4.rope.dimension_count_swa", u32(config.head_dim));
  content.set("gemma4.final_logit_softcapping", config.final_logit_softcapping);
  content.set("gemma4.embedding_length_per_layer_input", u32(config.hidden_size_per_layer_input));
  if (config.enable_moe_block) {
    content.set("gemma4.expert_count", u32(config.num_experts));
    content.set("gemma4.expert_used_count", u32(config.top_k_experts));
    content.set("gemma4.expert_feed_forward_length", u32(config.moe_intermediate_size));
  }
  const auto pairs = static_cast<std::size_t>(config.global_head_dim / 2);
  std::vector<float> factors(pairs, 1e30F);
  const auto rotating = static_cast<double>(pairs) * config.rope_full.partial_rotary_factor;
  std::fill_n(factors.begin(), static_cast<std::size_t>(rotating), 1.0F);
  content.add_floats("rope_freqs.weight", factors);
}

inline void add_checkpoint_tensors(GgufContent& content,
                                   GgufArchitecture architecture,
                                   const std::string& dir) {
  const Checkpoint checkpoint = Checkpoint::open(dir).value();
  for (const SafetensorsFile& file : checkpoint.files()) {
    for (const TensorView& tensor : file.tensors()) {
      const std::string name = gguf_tensor_name(architecture, strip_model_prefix(tensor.name));
      EXPECT_FALSE(name.empty()) << tensor.name;
      content.add_tensor(name, tensor.shape, tensor.dtype,
                         {tensor.data, tensor.data + tensor.bytes()});
    }
  }
}

// The model of a folder.
inline GgufContent model_as_gguf(const std::string& dir) {
  GgufContent content;
  const ModelConfig config = load_model_config(dir).value();
  const bool gemma = config.architecture == Architecture::kGemma4;
  add_common_keys(content, gemma ? "gemma4" : "qwen3", config);
  if (gemma) add_gemma4_keys(content, config);
  add_checkpoint_tensors(content, gemma ? GgufArchitecture::kGemma4 : GgufArchitecture::kQwen3,
                         dir);
  return content;
}

// The drafter of a folder.
inline GgufContent drafter_as_gguf(const std::string& dir) {
  GgufContent content;
  const DrafterConfig config = load_drafter_config(dir).value();
  add_common_keys(content, "dflash", config.layers);
  std::vector<std::int32_t> taps;
  for (const std::int64_t layer : config.target_layer_ids) {
    taps.push_back(static_cast<std::int32_t>(layer + 1));
  }
  content.set("dflash.target_layers", taps);
  content.set("dflash.block_size", u32(config.block_size));
  content.set("tokenizer.ggml.mask_token_id", u32(config.mask_token_id));
  if (config.layers.sliding_window > 0) {
    content.set("dflash.attention.sliding_window", u32(config.layers.sliding_window));
    content.set("dflash.attention.sliding_window_pattern", sliding_pattern(config.layers));
  }
  if (config.layers.final_logit_softcapping > 0.0F) {
    content.set("dflash.final_logit_softcapping", config.layers.final_logit_softcapping);
  }
  if (config.is_causal) content.set("dflash.attention.causal", *config.is_causal);
  if (config.input_embedding_scale) {
    content.set("dflash.embedding_scale", *config.input_embedding_scale);
  }
  if (config.output_multiplier != 1.0F) {
    content.set("dflash.logit_scale", config.output_multiplier);
  }
  add_checkpoint_tensors(content, GgufArchitecture::kDflash, dir);
  return content;
}

}  // namespace kakeya
