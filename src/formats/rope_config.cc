// Rotary embeddings in config.json, declared in formats/model_config_parts.h.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "formats/families.h"
#include "formats/model_config_parts.h"
#include "formats/printable.h"

namespace kakeya {

namespace {

constexpr NumberRange kThetaRange = {1.0, 1e12};
constexpr NumberRange kFactorRange = {1e-3, 1e6};
constexpr NumberRange kPartialRange = {0.0, 1.0};
// The last one is of GGUF files alone (formats/gguf_layers_config.cc).
constexpr std::array<std::string_view, 5> kRopeTypes = {"default", "linear", "proportional",
                                                        "llama3", "divisors"};

// A misspelt key must not leave its default behind.
Status check_rope_keys(const JsonFields& block) {
  // The others are for one type, or for types that are refused, and say nothing to the rest.
  constexpr std::array kKnown = {"rope_type",
                                 "type",
                                 "rope_theta",
                                 "factor",
                                 "partial_rotary_factor",
                                 "original_max_position_embeddings",
                                 "mrope_section",
                                 "mrope_interleaved"};
  constexpr std::array kOfLlama3 = {"low_freq_factor", "high_freq_factor"};
  constexpr std::array kOfRefusedTypes = {
      "attention_factor", "beta_fast", "beta_slow", "long_factor",     "short_factor",    "mscale",
      "mscale_all_dim",   "truncate",  "finetuned", "low_freq_factor", "high_freq_factor"};
  KAKEYA_ASSIGN_OR_RETURN(const std::string old_type, block.text_or("type", "default"));
  KAKEYA_ASSIGN_OR_RETURN(const std::string type, block.text_or("rope_type", old_type));
  const bool read = std::ranges::count(kRopeTypes, type) > 0;
  for (const std::string_view key : block.keys()) {
    if (!block.has(key) || std::ranges::find(kKnown, key) != kKnown.end()) continue;
    if (type == "llama3" && std::ranges::find(kOfLlama3, key) != kOfLlama3.end()) continue;
    if (type == "divisors" && key == "divisors") continue;
    if (!read && std::ranges::find(kOfRefusedTypes, key) != kOfRefusedTypes.end()) continue;
    return error(StatusCode::kUnimplemented, "{}: expected one of {}, got another field",
                 printable(block.name(key)), fmt::join(kKnown, ", "));
  }
  return {};
}

Result<Llama3Scaling> read_llama3(const JsonFields& block, double factor) {
  Llama3Scaling scaling = {.factor = factor};
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"}) {
    if (!block.has(key)) {
      return invalid_argument("{}: expected a number for rope_type llama3, got nothing",
                              block.name(key));
    }
  }
  KAKEYA_ASSIGN_OR_RETURN(scaling.low_freq_factor,
                          block.number_or("low_freq_factor", 1.0, kFactorRange));
  KAKEYA_ASSIGN_OR_RETURN(scaling.high_freq_factor,
                          block.number_or("high_freq_factor", 4.0, kFactorRange));
  KAKEYA_ASSIGN_OR_RETURN(scaling.original_max_position_embeddings,
                          block.integer("original_max_position_embeddings", kPositionsRange));
  if (scaling.low_freq_factor < scaling.high_freq_factor) return scaling;
  return invalid_argument("{}: expected more than low_freq_factor ({}), got {}",
                          block.name("high_freq_factor"), scaling.low_freq_factor,
                          scaling.high_freq_factor);
}

// The list that a GGUF file has in place of a formula (formats/gguf_config.cc).
Result<std::vector<float>> read_divisors(const JsonFields& block) {
  std::vector<float> divisors;
  const auto value = block.find("divisors");
  simdjson::dom::array list;
  if (value && value->get(list) == simdjson::SUCCESS) {
    for (const simdjson::dom::element each : list) {
      double number = 0.0;
      if (each.get(number) != simdjson::SUCCESS || !(number >= kFactorRange.low)) break;
      divisors.push_back(static_cast<float>(number));
    }
    if (divisors.size() == list.size() && !divisors.empty()) return divisors;
  }
  return invalid_argument("{}: expected a list of numbers of {} or more, got {}",
                          block.name("divisors"), kFactorRange.low,
                          value ? describe(*value) : "nothing");
}

// One block of RoPE settings; `theta` is that of a block without one.
Result<RopeParameters> read_rope_block(const JsonFields& values, std::optional<double> theta) {
  RopeParameters rope;
  KAKEYA_TRY(check_rope_keys(values));
  // "type" is the older spelling of "rope_type".
  KAKEYA_ASSIGN_OR_RETURN(const std::string old_type, values.text_or("type", "default"));
  KAKEYA_ASSIGN_OR_RETURN(const std::string type, values.text_or("rope_type", old_type));
  KAKEYA_ASSIGN_OR_RETURN(rope.partial_rotary_factor,
                          values.number_or("partial_rotary_factor", 1.0, kPartialRange));
  KAKEYA_ASSIGN_OR_RETURN(rope.factor, values.number_or("factor", 1.0, kFactorRange));
  if (std::ranges::count(kRopeTypes, type) == 0) {
    return error(StatusCode::kUnimplemented, "{}: expected one of {}, got \"{}\"",
                 values.name("rope_type"), fmt::join(std::span(kRopeTypes).first(4), ", "),
                 printable(type));
  }
  if (type == "llama3") {
    KAKEYA_ASSIGN_OR_RETURN(rope.llama3, read_llama3(values, rope.factor));
    rope.factor = 1.0;
  }
  if (type == "divisors") {
    KAKEYA_ASSIGN_OR_RETURN(rope.divisors, read_divisors(values));
  }
  const bool scaled = type == "linear" || type == "proportional" || type == "llama3";
  if (!scaled && rope.factor != 1.0) {
    return error(StatusCode::kUnimplemented, "{}: expected 1 for rope_type {}, got {}",
                 values.name("factor"), type, rope.factor);
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
                          values.number_or("rope_theta", theta.value_or(0.0), kThetaRange));
  return rope;
}

// The base of sliding layers. Where a family has one by default, scaling is of full layers alone.
Status read_sliding_rope(const JsonFields& text, ModelConfig& config) {
  const double local = family_of(config.architecture).defaults.rope_local_base_freq;
  config.rope_sliding = local != 0.0 ? RopeParameters() : config.rope_full;
  const double fallback = local != 0.0 ? local : config.rope_full.rope_theta;
  KAKEYA_ASSIGN_OR_RETURN(config.rope_sliding.rope_theta,
                          text.number_or("rope_local_base_freq", fallback, kThetaRange));
  return {};
}

// rope_theta and rope_scaling at the top, as written before rope_parameters existed.
Status read_old_rope(const JsonFields& text, ModelConfig& config) {
  const FamilyDefaults& defaults = family_of(config.architecture).defaults;
  KAKEYA_ASSIGN_OR_RETURN(const double theta,
                          text.number_or("rope_theta", defaults.rope_theta, kThetaRange));
  config.rope_full = {.rope_theta = theta};
  KAKEYA_ASSIGN_OR_RETURN(const auto scaling, text.object("rope_scaling"));
  if (scaling) {
    KAKEYA_ASSIGN_OR_RETURN(config.rope_full, read_rope_block(*scaling, theta));
  }
  return read_sliding_rope(text, config);
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
  if (got == expected) return {};
  return invalid_argument(
      "{}: expected what rope_parameters says (rope_theta {}, factor {}, partial_rotary_factor "
      "{}), got {}, {} and {}",
      text.name("rope_scaling"), expected.rope_theta, expected.factor,
      expected.partial_rotary_factor, got.rope_theta, got.factor, got.partial_rotary_factor);
}

// Fills both, whatever has what it needs.
Status read_any_rope(const JsonFields& text, ModelConfig& config) {
  config.rope_sliding = {.rope_theta = 1e4};
  config.rope_full = {.rope_theta = 1e4};
  KAKEYA_ASSIGN_OR_RETURN(const auto parameters, text.object("rope_parameters"));
  if (!parameters) {
    // Most published configurations have one of them; elsewhere none means that a name is wrong.
    const bool may_be_missing = family_of(config.architecture).defaults.rope_theta != 0.0;
    if (text.has("rope_theta") || may_be_missing) return read_old_rope(text, config);
    return invalid_argument("{}: expected an object (or rope_theta), got nothing",
                            text.name("rope_parameters"));
  }
  if (parameters->has(kFullName) || parameters->has(kSlidingName)) {
    KAKEYA_TRY(read_rope_of_types(*parameters, config));
    return check_scaling_agrees(text, config);
  }
  std::optional<double> theta;
  const double fallback = family_of(config.architecture).defaults.rope_theta;
  if (text.has("rope_theta") || fallback != 0.0) {
    KAKEYA_ASSIGN_OR_RETURN(theta, text.number_or("rope_theta", fallback, kThetaRange));
  }
  KAKEYA_ASSIGN_OR_RETURN(config.rope_full, read_rope_block(*parameters, theta));
  KAKEYA_TRY(read_sliding_rope(text, config));
  return check_scaling_agrees(text, config);
}

}  // namespace

float llama3_divisor(const Llama3Scaling& scaling, double frequency) {
  const double turns = static_cast<double>(scaling.original_max_position_embeddings) * frequency /
                       (2.0 * std::numbers::pi);
  if (turns > scaling.high_freq_factor) return 1.0F;
  if (turns < scaling.low_freq_factor) return static_cast<float>(scaling.factor);
  const double share =
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return static_cast<float>(1.0 / ((1.0 - share) / scaling.factor + share));
}

std::vector<float> rope_divisors(const RopeParameters& rope, std::int64_t head_dim) {
  if (!rope.llama3) return rope.divisors;
  std::vector<float> divisors;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    divisors.push_back(llama3_divisor(*rope.llama3, std::pow(rope.rope_theta, exponent)));
  }
  return divisors;
}

Status read_rope(const JsonFields& text, ModelConfig& config) {
  KAKEYA_TRY(read_any_rope(text, config));
  const auto check = [&](const RopeParameters& rope, std::int64_t head_dim) -> Status {
    if (rope.divisors.empty() || std::ssize(rope.divisors) == head_dim / 2) return {};
    return invalid_argument("{}: expected {} divisors, one a pair, got {}",
                            text.name("rope_scaling"), head_dim / 2, rope.divisors.size());
  };
  KAKEYA_TRY(check(config.rope_full, config.global_head_dim));
  return check(config.rope_sliding, config.head_dim);
}

}  // namespace kakeya
