// GGUF models for tests: the tensors of a checkpoint folder under the names, and its configuration
// under the keys, that llama.cpp's converter gives them. Written from the configuration's side,
// apart from the code that reads it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "formats/drafter_config.h"
#include "formats/families.h"
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

// The tensors that may stand for one of a model: itself, or halves of fused experts.
inline std::vector<std::string> gguf_pieces(const std::string& name) {
  constexpr std::string_view kFused = "experts.gate_up_proj";
  if (!name.ends_with(kFused)) return {name};
  const std::string stem = name.substr(0, name.size() - kFused.size());
  return {name, stem + "experts.gate_proj", stem + "experts.up_proj"};
}

// The keys of the families that are neither Gemma 4 nor Qwen3.
inline void add_family_keys(GgufContent& content, const ModelConfig& config) {
  const auto key = [&](const char* name) {
    return std::string(family_of(config.architecture).name) + "." + name;
  };
  if (config.architecture == Architecture::kGemma3) {
    content.set(key("attention.sliding_window_pattern"), sliding_pattern(config));
    content.set(key("rope.freq_base_swa"), static_cast<float>(config.rope_sliding.rope_theta));
    content.set(key("attention.scale"), config.attention_scale(0));
  }
  if (config.sliding_window > 0) {
    content.set(key("attention.sliding_window"), u32(config.sliding_window));
  }
  if (config.rope_full.factor != 1.0) {
    content.set(key("rope.scaling.type"), std::string("linear"));
    content.set(key("rope.scaling.factor"), static_cast<float>(config.rope_full.factor));
  }
  if (config.enable_moe_block) {
    content.set(key("expert_count"), u32(config.num_experts));
    content.set(key("expert_used_count"), u32(config.top_k_experts));
    content.set(key("expert_feed_forward_length"), u32(config.moe_intermediate_size));
  }
  if (!config.rope_full.llama3) return;
  std::vector<float> divisors;
  for (std::int64_t i = 0; i < config.head_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim);
    divisors.push_back(
        llama3_divisor(*config.rope_full.llama3, std::pow(config.rope_full.rope_theta, exponent)));
  }
  content.add_floats("rope_freqs.weight", divisors);
}

// The rows of the heads of Llama's queries and keys, as its files hold them: element i of the first
// half of a head, then element i of the second.
inline std::vector<std::byte> with_neighbours(const TensorView& tensor, std::int64_t head_dim) {
  const std::size_t row_bytes = tensor.bytes() / static_cast<std::size_t>(tensor.shape.front());
  std::vector<std::byte> stored;
  const auto add_row = [&](std::int64_t row) {
    const std::byte* begin = tensor.data + static_cast<std::size_t>(row) * row_bytes;
    stored.insert(stored.end(), begin, begin + row_bytes);
  };
  for (std::int64_t head = 0; head < tensor.shape.front(); head += head_dim) {
    for (std::int64_t i = 0; i < head_dim / 2; ++i) {
      add_row(head + i);
      add_row(head + head_dim / 2 + i);
    }
  }
  return stored;
}

// The tensors of a model as a file holds them: norms as they are multiplied, experts in one.
inline void add_model_tensors(GgufContent& content,
                              const ModelConfig& config,
                              const std::string& dir) {
  const GgufArchitecture architecture = gguf_architecture_of(config.architecture);
  const Checkpoint checkpoint = Checkpoint::open(dir).value();
  const ResolvedTensors tensors = resolve_tensors(checkpoint, expected_tensors(config)).value();
  for (const TensorSpec& spec : expected_tensors(config)) {
    for (const std::string& name : gguf_pieces(spec.name)) {
      const auto matrices = tensors.find_matrices(name);
      const TensorView* view = matrices.empty() ? tensors.find(name) : &matrices.front();
      if (view == nullptr) continue;
      Shape shape = view->shape;
      if (!matrices.empty()) shape.insert(shape.begin(), std::ssize(matrices));
      DType dtype = view->dtype;
      std::vector<std::byte> bytes(view->data, view->data + view->bytes());
      for (std::size_t i = 1; i < matrices.size(); ++i) {
        bytes.insert(bytes.end(), matrices[i].data, matrices[i].data + matrices[i].bytes());
      }
      if (spec.paired_rows != 0) bytes = with_neighbours(*view, spec.paired_rows);
      if (spec.less != 0.0F) {
        std::vector<float> values = to_f32(*view).value();
        for (float& value : values) value += spec.less;
        const auto whole = std::as_bytes(std::span(values));
        bytes.assign(whole.begin(), whole.end());
        dtype = DType::kF32;
      }
      content.add_tensor(gguf_tensor_name(architecture, name), shape, dtype, std::move(bytes));
    }
  }
}

inline void add_checkpoint_tensors(GgufContent& content,
                                   GgufArchitecture architecture,
                                   const std::string& dir) {
  const Checkpoint checkpoint = Checkpoint::open(dir).value();
  for (const SafetensorsFile& file : checkpoint.files()) {
    for (const TensorView& tensor : file.tensors()) {
      std::string own(strip_model_prefix(tensor.name));
      if (own.ends_with("_codebook")) own += ".weight";  // as the table that it is
      const std::string name = gguf_tensor_name(architecture, own);
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
  const GgufArchitecture architecture = gguf_architecture_of(config.architecture);
  add_common_keys(content, std::string(gguf_architecture_name(architecture)), config);
  if (architecture == GgufArchitecture::kGemma4) {
    add_gemma4_keys(content, config);
  } else {
    add_family_keys(content, config);
  }
  add_model_tensors(content, config, dir);
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
  if (config.has_selector()) {
    content.set("dflash.conv_kernel_size", u32(config.conv_kernel_size));
    content.set("dflash.conv_group_size", u32(config.conv_group_size));
    content.set("dflash.selector_rank", u32(config.selector_rank));
    content.set("dflash.selector_top_k", u32(config.selector_top_k));
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
