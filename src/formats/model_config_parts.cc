#include "formats/model_config_parts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "base/mapped_file.h"
#include "base/status.h"
#include "formats/families.h"
#include "formats/file_kind.h"
#include "formats/printable.h"

namespace kakeya {

namespace {

constexpr std::size_t kMaxConfigBytes = 16 << 20;

Status read_named_layer_types(const JsonFields& text, ModelConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(const auto names, text.texts("layer_types"));
  if (static_cast<std::int64_t>(names.size()) != config.num_hidden_layers) {
    return invalid_argument("{}: expected {} entries, one a layer, got {}",
                            text.name("layer_types"), config.num_hidden_layers, names.size());
  }
  for (const std::string& name : names) {
    if (name != kSlidingName && name != kFullName) {
      return error(StatusCode::kUnimplemented, "{}: expected {} or {}, got \"{}\"",
                   text.name("layer_types"), kSlidingName, kFullName, printable(name));
    }
    config.layer_types.push_back(name == kSlidingName ? LayerType::kSliding : LayerType::kFull);
  }
  return {};
}

// One full layer after every pattern - 1 sliding ones.
Status read_layer_pattern(const JsonFields& text, const Family& family, ModelConfig& config) {
  const std::int64_t layers = config.num_hidden_layers;
  const std::int64_t fallback = family.defaults.sliding_window_pattern;
  if (!text.has("sliding_window_pattern") && fallback == 0) {
    return invalid_argument("{}: expected a list (or sliding_window_pattern), got nothing",
                            text.name("layer_types"));
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t pattern,
                          size_or_default(text, "sliding_window_pattern", fallback, {1, 1024}));
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const bool last = family.last_layer_is_full && layer + 1 == layers;
    const bool full = (layer + 1) % pattern == 0 || last;
    config.layer_types.push_back(full ? LayerType::kFull : LayerType::kSliding);
  }
  return {};
}

// The layers of a family without windows all see everything before them.
Status reject_window(const JsonFields& text, const Family& family, bool sliding) {
  KAKEYA_ASSIGN_OR_RETURN(const bool use_window, text.boolean_or("use_sliding_window", false));
  if (!sliding && !use_window) return {};
  return error(StatusCode::kUnimplemented, "{}: sliding layers of {} are not supported",
               text.name(sliding ? "layer_types" : "use_sliding_window"), family.name);
}

// Fails if use_sliding_window, where it is given, does not go with the layer types of a drafter.
Status check_drafter_window(const JsonFields& text, bool sliding) {
  KAKEYA_ASSIGN_OR_RETURN(const bool use_window, text.boolean_or("use_sliding_window", sliding));
  if (sliding && !use_window) {
    return invalid_argument("{}: expected true for layers of type {}, got false",
                            text.name("use_sliding_window"), kSlidingName);
  }
  if (use_window && !text.has("layer_types")) {
    return invalid_argument("{}: expected a list with use_sliding_window, got nothing",
                            text.name("layer_types"));
  }
  return {};
}

}  // namespace

Result<std::string> read_config_file(const std::string& path) {
  KAKEYA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  if (bytes.size() > kMaxConfigBytes) {
    return invalid_argument("{}: {} bytes, expected at most {}", path, bytes.size(),
                            kMaxConfigBytes);
  }
  if (const Status whole = check_no_lfs_pointer(bytes); !whole) {
    return Unexpected(whole.error().with_context(path));
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<bool> is_drafter(const JsonFields& root) {
  KAKEYA_ASSIGN_OR_RETURN(const auto architectures, root.texts("architectures"));
  const bool named = std::any_of(architectures.begin(), architectures.end(),
                                 [](std::string_view name) { return name.starts_with("DFlash"); });
  KAKEYA_ASSIGN_OR_RETURN(const auto kind, root.text_or("speculators_model_type", ""));
  return named || root.has("dflash_config") || kind.starts_with("dflash");
}

Status check_quantization(const JsonFields& fields) {
  for (const std::string_view key : {"quantization", "quantization_config"}) {
    KAKEYA_ASSIGN_OR_RETURN(const auto block, fields.object(key));
    if (!block) continue;
    KAKEYA_ASSIGN_OR_RETURN(const auto method, block->text_or("quant_method", ""));
    KAKEYA_ASSIGN_OR_RETURN(const auto mode, block->text_or("mode", "affine"));
    if (!method.empty() || mode != "affine") {
      return error(StatusCode::kUnimplemented,
                   "{}: expected MLX's affine format, got {}, which is not read", fields.name(key),
                   printable(method.empty() ? mode : method));
    }
  }
  return {};
}

Status read_sizes(const JsonFields& text, ModelConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(config.hidden_size, text.integer("hidden_size", kWidthRange));
  KAKEYA_ASSIGN_OR_RETURN(config.intermediate_size, text.integer("intermediate_size", kWidthRange));
  KAKEYA_ASSIGN_OR_RETURN(config.num_hidden_layers,
                          text.integer("num_hidden_layers", kLayersRange));
  KAKEYA_ASSIGN_OR_RETURN(const double epsilon, text.number_or("rms_norm_eps", 1e-6, {1e-12, 1.0}));
  config.rms_norm_eps = static_cast<float>(epsilon);
  return {};
}

Result<std::int64_t> size_or_default(const JsonFields& text,
                                     std::string_view key,
                                     std::int64_t fallback,
                                     IntegerRange range) {
  return fallback == 0 ? text.integer(key, range) : text.integer_or(key, fallback, range);
}

Status read_activation(const JsonFields& text, ModelConfig& config) {
  config.hidden_activation = family_of(config.architecture).activation;
  const bool gelu = config.hidden_activation == Activation::kGeluTanh;
  const std::string_view expected = gelu ? "gelu_pytorch_tanh" : "silu";
  // Other architectures have it under the other name; who writes that one means it.
  for (const std::string_view key : {"hidden_activation", "hidden_act"}) {
    KAKEYA_ASSIGN_OR_RETURN(const std::string name, text.text_or(key, expected));
    if (name != expected) {
      return error(StatusCode::kUnimplemented, "{}: expected \"{}\", got \"{}\"", text.name(key),
                   expected, printable(name));
    }
  }
  return {};
}

Status read_biases(const JsonFields& text, ModelConfig& config) {
  const Family& family = family_of(config.architecture);
  const bool qkv = family.biases == Biases::kQkv;
  KAKEYA_ASSIGN_OR_RETURN(const bool attention, text.boolean_or("attention_bias", qkv));
  KAKEYA_ASSIGN_OR_RETURN(config.mlp_bias, text.boolean_or("mlp_bias", false));
  config.qkv_bias = attention;
  config.o_bias = attention && !qkv;
  if (family.biases == Biases::kByField || attention == qkv) return {};
  return error(StatusCode::kUnimplemented, "{}: expected {} for {}, got {}",
               text.name("attention_bias"), qkv, family.name, attention);
}

Status read_layer_types(const JsonFields& text, StackKind kind, ModelConfig& config) {
  const Family& family = family_of(config.architecture);
  const auto all_layers = static_cast<std::size_t>(config.num_hidden_layers);
  if (text.has("layer_types")) {
    KAKEYA_TRY(read_named_layer_types(text, config));
  } else if (family.windows == Windows::kByLayerType) {
    KAKEYA_TRY(read_layer_pattern(text, family, config));
  } else {
    // Mistral alone of Llama's networks has windows.
    const bool slides = family.windows == Windows::kAllLayers && text.has("sliding_window") &&
                        config.model_type == "mistral";
    config.layer_types.assign(all_layers, slides ? LayerType::kSliding : LayerType::kFull);
  }
  const bool sliding = std::find(config.layer_types.begin(), config.layer_types.end(),
                                 LayerType::kSliding) != config.layer_types.end();
  if (kind == StackKind::kDrafter) {
    KAKEYA_TRY(check_drafter_window(text, sliding));
  } else if (family.windows == Windows::kNone) {
    KAKEYA_TRY(reject_window(text, family, sliding));
  }
  if (family.last_layer_is_full && config.layer_types.back() != LayerType::kFull) {
    return invalid_argument("{}: expected the last layer to be {}, got {}",
                            text.name("layer_types"), kFullName, kSlidingName);
  }
  if (sliding) {
    KAKEYA_ASSIGN_OR_RETURN(
        config.sliding_window,
        size_or_default(text, "sliding_window", family.defaults.sliding_window, {1, 1 << 30}));
  }
  return {};
}

}  // namespace kakeya
