// The heads of the layers of a model, declared in formats/model_config_parts.h.
#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/families.h"
#include "formats/model_config_parts.h"
#include "formats/printable.h"

namespace kakeya {

namespace {

constexpr IntegerRange kHeadsRange = {1, 1024};
constexpr IntegerRange kHeadDimRange = {2, 4096};

// The heads of full layers by fields of their own.
Status read_heads_of_full_layers(const JsonFields& text, ModelConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(config.global_head_dim,
                          text.integer_or("global_head_dim", 512, kHeadDimRange));
  KAKEYA_ASSIGN_OR_RETURN(
      const std::int64_t full,
      text.integer_or("num_global_key_value_heads", config.num_key_value_heads, kHeadsRange));
  if (config.attention_k_eq_v) config.num_global_key_value_heads = full;
  return {};
}

struct LayerHeads {
  std::int64_t head_dim = 0;
  std::int64_t num_key_value_heads = 0;
  bool operator==(const LayerHeads&) const = default;
};

// The layer that a key of per_layer_config names: digits, which may begin with zeros.
Result<std::size_t> read_layer_key(const JsonFields& overrides,
                                   std::string_view key,
                                   std::int64_t layers) {
  std::int64_t layer = -1;
  const char* const end = key.data() + key.size();
  const bool digits = std::ranges::all_of(key, [](char c) { return c >= '0' && c <= '9'; });
  const auto [stop, failure] = std::from_chars(key.data(), end, layer);
  if (digits && failure == std::errc() && stop == end && layer < layers) {
    return static_cast<std::size_t>(layer);
  }
  return invalid_argument("{}: expected the number of a layer from 0 to {}, got another key",
                          printable(overrides.name(key)), layers - 1);
}

// Reads what one layer has instead of the fields that are for all.
Status read_layer_overrides(const JsonFields& layer, LayerHeads& heads) {
  for (const std::string_view key : layer.keys()) {
    if (!layer.has(key) || key == "head_dim" || key == "num_key_value_heads") continue;
    simdjson::dom::array parts;
    const bool skips_nothing =
        key == "skip" && layer.find(key)->get(parts) == simdjson::SUCCESS && parts.size() == 0;
    if (skips_nothing) continue;
    return error(StatusCode::kUnimplemented,
                 "{}: expected head_dim or num_key_value_heads, got another field",
                 printable(layer.name(key)));
  }
  KAKEYA_ASSIGN_OR_RETURN(heads.head_dim,
                          layer.integer_or("head_dim", heads.head_dim, kHeadDimRange));
  KAKEYA_ASSIGN_OR_RETURN(
      heads.num_key_value_heads,
      layer.integer_or("num_key_value_heads", heads.num_key_value_heads, kHeadsRange));
  return {};
}

// A field of full layers that stands beside per_layer_config must not say something else.
Status check_heads_agree(const JsonFields& text, std::string_view key, std::int64_t expected) {
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t got,
                          text.integer_or(key, expected, {1, kHeadDimRange.high}));
  if (got == expected) return {};
  return invalid_argument("{}: expected {}, as per_layer_config says, got {}", text.name(key),
                          expected, got);
}

// Reads the heads of every layer from per_layer_config, which transformers >= 5.15 saves: layer
// numbers and what differs there from head_dim and num_key_value_heads.
Result<std::vector<LayerHeads>> read_layer_heads(const JsonFields& text,
                                                 const ModelConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(const auto overrides, text.object("per_layer_config"));
  const LayerHeads common = {config.head_dim, config.num_key_value_heads};
  std::vector<LayerHeads> heads(config.layer_types.size(), common);
  std::vector<bool> seen(heads.size());
  for (const std::string_view key : overrides->keys()) {
    KAKEYA_ASSIGN_OR_RETURN(const std::size_t layer,
                            read_layer_key(*overrides, key, config.num_hidden_layers));
    if (seen[layer]) {
      return invalid_argument("{}: expected one entry for layer {}, got two",
                              text.name("per_layer_config"), layer);
    }
    seen[layer] = true;
    KAKEYA_ASSIGN_OR_RETURN(const auto values, overrides->object(key));
    if (values) KAKEYA_TRY(read_layer_overrides(*values, heads[layer]));
  }
  return heads;
}

// Finds the heads of a type of layer, the same in all layers of it; no value without such a
// layer.
Result<std::optional<LayerHeads>> heads_of_type(const JsonFields& text,
                                                const ModelConfig& config,
                                                std::span<const LayerHeads> heads,
                                                LayerType type) {
  std::optional<std::size_t> first;
  for (std::size_t layer = 0; layer < heads.size(); ++layer) {
    if (config.layer_types[layer] != type) continue;
    if (!first) first = layer;
    const LayerHeads& expected = heads[*first];
    const LayerHeads& got = heads[layer];
    if (got == expected) continue;
    return error(StatusCode::kUnimplemented,
                 "{}: expected the same heads in all {} layers, got {} of {} in layer {} and {} of "
                 "{} in layer {}",
                 text.name("per_layer_config"), type == LayerType::kFull ? "full" : "sliding",
                 expected.num_key_value_heads, expected.head_dim, *first, got.num_key_value_heads,
                 got.head_dim, layer);
  }
  return first ? std::optional(heads[*first]) : std::nullopt;
}

Status read_heads_by_layer(const JsonFields& text, ModelConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(const auto heads, read_layer_heads(text, config));
  KAKEYA_ASSIGN_OR_RETURN(const auto sliding,
                          heads_of_type(text, config, heads, LayerType::kSliding));
  KAKEYA_ASSIGN_OR_RETURN(const auto full, heads_of_type(text, config, heads, LayerType::kFull));
  if (full) {
    config.global_head_dim = full->head_dim;
    config.num_global_key_value_heads = full->num_key_value_heads;
  }
  if (sliding) {
    config.head_dim = sliding->head_dim;
    config.num_key_value_heads = sliding->num_key_value_heads;
  }
  KAKEYA_TRY(check_heads_agree(text, "global_head_dim", config.global_head_dim));
  if (!config.attention_k_eq_v) return {};
  return check_heads_agree(text, "num_global_key_value_heads", config.num_global_key_value_heads);
}

// Looks for a per_layer_config that says something: early files have a list of objects
// without fields.
bool has_heads_by_layer(const JsonFields& text) {
  const auto value = text.find("per_layer_config");
  simdjson::dom::array list;
  if (!value || value->get(list) != simdjson::SUCCESS) return value.has_value();
  for (const simdjson::dom::element each : list) {
    simdjson::dom::object fields;
    if (each.get(fields) != simdjson::SUCCESS || fields.size() > 0) return true;
  }
  return false;
}

// Without a field and a default heads share the width of the hidden state.
Status read_head_dim(const JsonFields& text, const FamilyDefaults& defaults, ModelConfig& config) {
  const std::int64_t heads = config.num_attention_heads;
  if (!text.has("head_dim") && defaults.head_dim == 0 && config.hidden_size % heads != 0) {
    return invalid_argument(
        "{}: expected a multiple of the {} heads, for head_dim is missing, got {}",
        text.name("hidden_size"), heads, config.hidden_size);
  }
  const std::int64_t fallback =
      defaults.head_dim == 0 ? config.hidden_size / heads : defaults.head_dim;
  KAKEYA_ASSIGN_OR_RETURN(config.head_dim, text.integer_or("head_dim", fallback, kHeadDimRange));
  return {};
}

// Gemma 3 says of what the scores are divided by the root; elsewhere it is the head dimension.
Status read_query_scalar(const JsonFields& text, ModelConfig& config) {
  if (config.architecture != Architecture::kGemma3) return {};
  KAKEYA_ASSIGN_OR_RETURN(config.query_pre_attn_scalar,
                          text.number_or("query_pre_attn_scalar", 256.0, {1.0, 1e6}));
  return {};
}

}  // namespace

Status read_heads(const JsonFields& text, ModelConfig& config) {
  const FamilyDefaults& defaults = family_of(config.architecture).defaults;
  KAKEYA_ASSIGN_OR_RETURN(
      config.num_attention_heads,
      size_or_default(text, "num_attention_heads", defaults.num_attention_heads, kHeadsRange));
  KAKEYA_ASSIGN_OR_RETURN(
      config.num_key_value_heads,
      text.integer_or("num_key_value_heads",
                      defaults.num_key_value_heads == 0 ? config.num_attention_heads
                                                        : defaults.num_key_value_heads,
                      kHeadsRange));
  KAKEYA_TRY(read_head_dim(text, defaults, config));
  config.global_head_dim = config.head_dim;
  config.num_global_key_value_heads = config.num_key_value_heads;
  if (config.architecture == Architecture::kGemma4) {
    KAKEYA_ASSIGN_OR_RETURN(config.attention_k_eq_v, text.boolean_or("attention_k_eq_v", false));
    KAKEYA_TRY(has_heads_by_layer(text) ? read_heads_by_layer(text, config)
                                        : read_heads_of_full_layers(text, config));
  }
  for (const std::int64_t heads : {config.num_key_value_heads, config.num_global_key_value_heads}) {
    if (config.num_attention_heads % heads != 0) {
      return invalid_argument("{}: expected a multiple of the {} key/value heads, got {}",
                              text.name("num_attention_heads"), heads, config.num_attention_heads);
    }
  }
  for (const std::int64_t dim : {config.head_dim, config.global_head_dim}) {
    if (dim % 2 != 0) {
      return invalid_argument("{}: expected an even number, got {}", text.name("head_dim"), dim);
    }
  }
  return read_query_scalar(text, config);
}

}  // namespace kakeya
