#include "formats/model_config_parts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "base/mapped_file.h"
#include "base/status.h"
#include "formats/file_kind.h"
#include "formats/printable.h"

namespace kakeya {

namespace {

constexpr const char* kSlidingName = "sliding_attention";
constexpr const char* kFullName = "full_attention";
constexpr std::size_t kMaxConfigBytes = 16 << 20;
constexpr NumberRange kTheta = {1.0, 1e12};
constexpr NumberRange kFactor = {1e-3, 1e6};
constexpr NumberRange kPartial = {0.0, 1.0};

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

// One full layer after every pattern - 1 sliding ones; the last layer is always full.
Status read_layer_pattern(const JsonFields& text, ModelConfig& config) {
  const std::int64_t layers = config.num_hidden_layers;
  if (!text.has("sliding_window_pattern")) {
    return invalid_argument("{}: expected a list (or sliding_window_pattern), got nothing",
                            text.name("layer_types"));
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t pattern,
                          text.integer("sliding_window_pattern", {1, 1024}));
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const bool full = (layer + 1) % pattern == 0 || layer + 1 == layers;
    config.layer_types.push_back(full ? LayerType::kFull : LayerType::kSliding);
  }
  return {};
}

// The layers of a Qwen3 model all see everything before them.
Status reject_window(const JsonFields& text, bool sliding) {
  KAKEYA_ASSIGN_OR_RETURN(const bool use_window, text.boolean_or("use_sliding_window", false));
  if (!sliding && !use_window) return {};
  return error(StatusCode::kUnimplemented, "{}: sliding layers of Qwen3 are not supported",
               text.name(sliding ? "layer_types" : "use_sliding_window"));
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

// A misspelt key must not leave its default behind.
Status check_rope_keys(const JsonFields& block) {
  // The last ones are for types that are refused, and say nothing to the others.
  constexpr std::array kKnown = {"rope_type",
                                 "type",
                                 "rope_theta",
                                 "factor",
                                 "partial_rotary_factor",
                                 "original_max_position_embeddings",
                                 "mrope_section",
                                 "mrope_interleaved"};
  constexpr std::array kOfRefusedTypes = {"attention_factor", "beta_fast",       "beta_slow",
                                          "long_factor",      "short_factor",    "mscale",
                                          "mscale_all_dim",   "low_freq_factor", "truncate",
                                          "finetuned",        "high_freq_factor"};
  KAKEYA_ASSIGN_OR_RETURN(const std::string old_type, block.text_or("type", "default"));
  KAKEYA_ASSIGN_OR_RETURN(const std::string type, block.text_or("rope_type", old_type));
  const bool read = type == "default" || type == "linear" || type == "proportional";
  for (const std::string_view key : block.keys()) {
    if (!block.has(key) || std::ranges::find(kKnown, key) != kKnown.end()) continue;
    if (!read && std::ranges::find(kOfRefusedTypes, key) != kOfRefusedTypes.end()) continue;
    return error(StatusCode::kUnimplemented, "{}: expected one of {}, got another field",
                 printable(block.name(key)), fmt::join(kKnown, ", "));
  }
  return {};
}

// One block of RoPE settings; `theta` is that of a block without one.
Result<RopeParameters> read_rope_block(const JsonFields& values, std::optional<double> theta) {
  RopeParameters rope;
  KAKEYA_TRY(check_rope_keys(values));
  // "type" is the older spelling of "rope_type".
  KAKEYA_ASSIGN_OR_RETURN(const std::string old_type, values.text_or("type", "default"));
  KAKEYA_ASSIGN_OR_RETURN(const std::string type, values.text_or("rope_type", old_type));
  KAKEYA_ASSIGN_OR_RETURN(rope.partial_rotary_factor,
                          values.number_or("partial_rotary_factor", 1.0, kPartial));
  KAKEYA_ASSIGN_OR_RETURN(rope.factor, values.number_or("factor", 1.0, kFactor));
  if (type != "default" && type != "proportional" && type != "linear") {
    return error(StatusCode::kUnimplemented,
                 "{}: expected default, linear or proportional, got \"{}\"",
                 values.name("rope_type"), printable(type));
  }
  if (type == "default" && rope.factor != 1.0) {
    return error(StatusCode::kUnimplemented, "{}: expected 1 for rope_type default, got {}",
                 values.name("factor"), rope.factor);
  }
  // Only the proportional type keeps the full head dimension in the exponent.
  if (type != "proportional" && rope.partial_rotary_factor != 1.0) {
    return error(StatusCode::kUnimplemented, "{}: expected 1 for rope_type {}, got {}",
                 values.name("partial_rotary_factor"), type, rope.partial_rotary_factor);
  }
  if (!theta && !values.has("rope_theta")) {
    return invalid_argument("{}: expected a number, got nothing", values.name("rope_theta"));
  }
  KAKEYA_ASSIGN_OR_RETURN(rope.rope_theta,
                          values.number_or("rope_theta", theta.value_or(0.0), kTheta));
  return rope;
}

// rope_theta and rope_scaling at the top, as written before rope_parameters existed.
Status read_old_rope(const JsonFields& text, ModelConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(const double theta, text.number_or("rope_theta", 0.0, kTheta));
  config.rope_full = {.rope_theta = theta};
  KAKEYA_ASSIGN_OR_RETURN(const auto scaling, text.object("rope_scaling"));
  if (scaling) {
    KAKEYA_ASSIGN_OR_RETURN(config.rope_full, read_rope_block(*scaling, theta));
  }
  config.rope_sliding = config.rope_full;
  KAKEYA_ASSIGN_OR_RETURN(config.rope_sliding.rope_theta,
                          text.number_or("rope_local_base_freq", theta, kTheta));
  return {};
}

// A block for each type of layer that there is, and nothing else.
Status read_rope_of_types(const JsonFields& parameters, ModelConfig& config) {
  for (const std::string_view key : parameters.keys()) {
    if (key == kFullName || key == kSlidingName || !parameters.has(key)) continue;
    return error(StatusCode::kUnimplemented, "{}: expected {} or {}, got another field",
                 printable(parameters.name(key)), kFullName, kSlidingName);
  }
  for (const LayerType type : {LayerType::kFull, LayerType::kSliding}) {
    const char* const name = type == LayerType::kFull ? kFullName : kSlidingName;
    RopeParameters& rope = type == LayerType::kFull ? config.rope_full : config.rope_sliding;
    KAKEYA_ASSIGN_OR_RETURN(const auto block, parameters.object(name));
    if (block) {
      KAKEYA_ASSIGN_OR_RETURN(rope, read_rope_block(*block, std::nullopt));
    } else if (std::ranges::find(config.layer_types, type) != config.layer_types.end()) {
      return invalid_argument("{}: expected an object, for there are such layers, got nothing",
                              parameters.name(name));
    }
  }
  return {};
}

// Compares rope_scaling with the rope_parameters beside it: programs take one of them, so both say
// the same.
Status check_scaling_agrees(const JsonFields& text, const ModelConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(const auto scaling, text.object("rope_scaling"));
  if (!scaling || scaling->keys().empty()) return {};
  const RopeParameters& expected = config.rope_full;
  KAKEYA_ASSIGN_OR_RETURN(const RopeParameters got, read_rope_block(*scaling, expected.rope_theta));
  if (got.rope_theta == expected.rope_theta && got.factor == expected.factor &&
      got.partial_rotary_factor == expected.partial_rotary_factor) {
    return {};
  }
  return invalid_argument(
      "{}: expected what rope_parameters says (rope_theta {}, factor {}, partial_rotary_factor "
      "{}), got {}, {} and {}",
      text.name("rope_scaling"), expected.rope_theta, expected.factor,
      expected.partial_rotary_factor, got.rope_theta, got.factor, got.partial_rotary_factor);
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
  return named || root.has("dflash_config");
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

Status read_activation(const JsonFields& text, ModelConfig& config) {
  const bool gemma = config.architecture == Architecture::kGemma4;
  const std::string_view expected = gemma ? "gelu_pytorch_tanh" : "silu";
  // Other architectures have it under the other name; who writes that one means it.
  for (const std::string_view key : {"hidden_activation", "hidden_act"}) {
    KAKEYA_ASSIGN_OR_RETURN(const std::string name, text.text_or(key, expected));
    if (name != expected) {
      return error(StatusCode::kUnimplemented, "{}: expected \"{}\", got \"{}\"", text.name(key),
                   expected, printable(name));
    }
  }
  config.hidden_activation = gemma ? Activation::kGeluTanh : Activation::kSilu;
  KAKEYA_ASSIGN_OR_RETURN(const bool bias, text.boolean_or("attention_bias", false));
  if (bias) {
    return error(StatusCode::kUnimplemented, "{}: projections with a bias are not supported",
                 text.name("attention_bias"));
  }
  return {};
}

Status read_layer_types(const JsonFields& text, StackKind kind, ModelConfig& config) {
  const bool gemma = config.architecture == Architecture::kGemma4;
  if (text.has("layer_types")) {
    KAKEYA_TRY(read_named_layer_types(text, config));
  } else if (gemma) {
    KAKEYA_TRY(read_layer_pattern(text, config));
  } else {
    config.layer_types.assign(static_cast<std::size_t>(config.num_hidden_layers), LayerType::kFull);
  }
  const bool sliding = std::find(config.layer_types.begin(), config.layer_types.end(),
                                 LayerType::kSliding) != config.layer_types.end();
  if (kind == StackKind::kDrafter) {
    KAKEYA_TRY(check_drafter_window(text, sliding));
  } else if (!gemma) {
    KAKEYA_TRY(reject_window(text, sliding));
  }
  if (gemma && config.layer_types.back() != LayerType::kFull) {
    return invalid_argument("{}: expected the last layer to be {}, got {}",
                            text.name("layer_types"), kFullName, kSlidingName);
  }
  if (sliding) {
    KAKEYA_ASSIGN_OR_RETURN(config.sliding_window, text.integer("sliding_window", {1, 1 << 30}));
  }
  return {};
}

Status read_rope(const JsonFields& text, ModelConfig& config) {
  config.rope_sliding = {.rope_theta = 1e4};
  config.rope_full = {.rope_theta = 1e4};
  KAKEYA_ASSIGN_OR_RETURN(const auto parameters, text.object("rope_parameters"));
  if (!parameters) {
    // Every published configuration has one of them; none means that a name is wrong.
    if (text.has("rope_theta")) return read_old_rope(text, config);
    return invalid_argument("{}: expected an object (or rope_theta), got nothing",
                            text.name("rope_parameters"));
  }
  if (parameters->has(kFullName) || parameters->has(kSlidingName)) {
    KAKEYA_TRY(read_rope_of_types(*parameters, config));
    return check_scaling_agrees(text, config);
  }
  std::optional<double> theta;
  if (text.has("rope_theta")) {
    KAKEYA_ASSIGN_OR_RETURN(theta, text.number_or("rope_theta", 0.0, kTheta));
  }
  KAKEYA_ASSIGN_OR_RETURN(config.rope_full, read_rope_block(*parameters, theta));
  config.rope_sliding = config.rope_full;
  return check_scaling_agrees(text, config);
}

}  // namespace kakeya
