#include "convert/gguf_types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

namespace kakeya {

namespace {

constexpr std::array kTypes = {
    GgufFileType{"f32", 0, DType::kF32},
    GgufFileType{"f16", 1, DType::kF16},
    GgufFileType{"bf16", 32, DType::kBF16},
    GgufFileType{"q4_0", 2, QuantizedFormat::kQ40},
    GgufFileType{"q4_1", 3, QuantizedFormat::kQ41},
    GgufFileType{"q5_0", 8, QuantizedFormat::kQ50},
    GgufFileType{"q5_1", 9, QuantizedFormat::kQ51},
    GgufFileType{"q8_0", 7, QuantizedFormat::kQ80},
    GgufFileType{"q4_k_m", 15, QuantizedFormat::kQ4K, GgufMix::kMoreBits},
    GgufFileType{"q5_k_m", 17, QuantizedFormat::kQ5K, GgufMix::kMoreBits},
    GgufFileType{"q6_k", 18, QuantizedFormat::kQ6K},
};

// Files made of a model with eight experts have more bits in attention, which is small there.
constexpr std::int64_t kFewExperts = 8;

std::int64_t layer_of(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  std::int64_t layer = -1;
  if (name.starts_with(kLayers)) {
    name.remove_prefix(kLayers.size());
    std::from_chars(name.data(), name.data() + name.size(), layer);
  }
  return layer;
}

// The first and the last eighth, and each third one between.
bool gets_more_bits(std::int64_t index, std::int64_t count) {
  return index < count / 8 || index >= 7 * count / 8 || (index - count / 8) % 3 == 2;
}

// Which of the layers that have values of their own this is, and how many there are.
std::pair<std::int64_t, std::int64_t> place_among_values(const SourceModel& model,
                                                         std::string_view name) {
  std::int64_t index = 0;
  std::int64_t count = 0;
  for (const NamedTensor& tensor : model.tensors) {
    if (!tensor.name.ends_with("self_attn.v_proj.weight")) continue;
    if (tensor.name == name) index = count;
    ++count;
  }
  return {index, count};
}

// Norms, scales, kernels of convolutions, and the router, whose mistakes are expensive.
bool stays_f32(const NamedTensor& tensor) {
  return tensor.rows.shape().size() < 2 || tensor.name.ends_with(".base_kernel") ||
         tensor.name.ends_with("router.proj.weight") || tensor.name.ends_with("mlp.gate.weight");
}

// llama.cpp counts every embedding of a model with a tied head, that of the layers too.
bool is_head(const SourceModel& model, std::string_view name) {
  if (name == "lm_head.weight") return true;
  return model.config.tie_word_embeddings &&
         (name == "embed_tokens.weight" || name == "embed_tokens_per_layer.weight");
}

// Before rows are looked at.
QuantizedFormat wanted_format(const SourceModel& model,
                              const NamedTensor& tensor,
                              QuantizedFormat base,
                              GgufMix mix) {
  const std::string_view name = tensor.name;
  const bool few_experts = model.config.num_experts == kFewExperts;
  const bool more = mix == GgufMix::kMoreBits;
  if (is_head(model, name)) {
    return base == QuantizedFormat::kQ80 ? base : QuantizedFormat::kQ6K;
  }
  if (name.ends_with("self_attn.v_proj.weight")) {
    if (few_experts) return QuantizedFormat::kQ80;
    const auto [index, count] = place_among_values(model, name);
    return more && gets_more_bits(index, count) ? QuantizedFormat::kQ6K : base;
  }
  if (few_experts && name.ends_with("self_attn.k_proj.weight")) return QuantizedFormat::kQ80;
  if (few_experts && more && base == QuantizedFormat::kQ4K &&
      name.ends_with("self_attn.o_proj.weight")) {
    return QuantizedFormat::kQ5K;
  }
  const bool down = name.ends_with("mlp.down_proj.weight") || name.ends_with("experts.down_proj");
  if (down && more && gets_more_bits(layer_of(name), model.config.num_hidden_layers)) {
    return QuantizedFormat::kQ6K;
  }
  return base;
}

// The format that takes the place of one whose blocks are longer than the rows.
QuantizedFormat short_blocks(QuantizedFormat format) {
  switch (format) {
    case QuantizedFormat::kQ4K:
      return QuantizedFormat::kQ50;
    case QuantizedFormat::kQ5K:
      return QuantizedFormat::kQ51;
    default:
      return QuantizedFormat::kQ80;
  }
}

}  // namespace

std::optional<GgufFileType> find_gguf_file_type(std::string_view name) {
  for (const GgufFileType& type : kTypes) {
    if (type.name == name) return type;
  }
  return std::nullopt;
}

std::optional<QuantizedFormat> gguf_format_of_rows(QuantizedFormat wanted, std::int64_t columns) {
  for (const QuantizedFormat format : {wanted, short_blocks(wanted)}) {
    if (columns % quantized_block_elements(format) == 0) return format;
  }
  return std::nullopt;
}

std::string gguf_file_type_names() {
  std::vector<std::string_view> names;
  for (const GgufFileType& type : kTypes) names.push_back(type.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

TensorEncoding gguf_encoding(const SourceModel& model,
                             const NamedTensor& tensor,
                             const GgufFileType& type) {
  if (stays_f32(tensor)) return DType::kF32;
  const auto* base = std::get_if<QuantizedFormat>(&type.encoding);
  if (base == nullptr) return type.encoding;
  // It feeds a norm in every layer, and llama.cpp leaves it alone.
  if (tensor.name == "per_layer_model_projection.weight") {
    return tensor.rows.is_quantized() ? DType::kBF16 : tensor.rows.dtype();
  }
  const auto format =
      gguf_format_of_rows(wanted_format(model, tensor, *base, type.mix), tensor.rows.columns());
  return format ? TensorEncoding(*format) : DType::kF16;
}

}  // namespace kakeya
