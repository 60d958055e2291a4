// The layers of all families but Gemma 4 in a GGUF file, and of drafters.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "formats/gguf_config_reader.h"
#include "formats/printable.h"

namespace kakeya {

namespace {

// The base of rotary embeddings where a file says none, in families whose files may do so.
constexpr double kDefaultBase = 1e4;

// The scalings of type "llama3" that are published: writers of GGUF files keep their divisors
// alone.
constexpr std::array kPublishedScalings = {
    Llama3Scaling{.factor = 8.0,
                  .low_freq_factor = 1.0,
                  .high_freq_factor = 4.0,
                  .original_max_position_embeddings = 8192},
    Llama3Scaling{.factor = 32.0,
                  .low_freq_factor = 1.0,
                  .high_freq_factor = 4.0,
                  .original_max_position_embeddings = 8192},
};

// The published scaling with these divisors, but for rounding.
std::optional<Llama3Scaling> published_scaling(double theta, const std::vector<float>& divisors) {
  const std::int64_t head_dim = 2 * std::ssize(divisors);
  for (const Llama3Scaling& scaling : kPublishedScalings) {
    const std::vector<float> expected =
        rope_divisors({.rope_theta = theta, .llama3 = scaling}, head_dim);
    const auto is_near = [](float got, float wanted) {
      return std::abs(got - wanted) <= 1e-5F * wanted;
    };
    if (std::ranges::equal(divisors, expected, is_near)) return scaling;
  }
  return std::nullopt;
}

}  // namespace

Status GgufConfigReader::read_layers(const Family* family) {
  KAKEYA_TRY(copy(has("attention.head_count_kv") || family == nullptr ? "attention.head_count_kv"
                                                                      : "attention.head_count",
                  "num_key_value_heads"));
  const bool experts = family != nullptr && family->experts == Experts::kInsteadOfMlp;
  // Nothing has this width where experts stand for the MLP.
  KAKEYA_TRY(copy(
      experts && !has("feed_forward_length") ? "expert_feed_forward_length" : "feed_forward_length",
      "intermediate_size"));
  KAKEYA_TRY(read_head_dim(family));
  return read_rope(family);
}

Status GgufConfigReader::read_head_dim(const Family* family) {
  const bool may_be_missing = family != nullptr && family->defaults.head_dim == 0;
  if (may_be_missing && !has("attention.key_length")) {
    const auto hidden = config_["hidden_size"].get<std::int64_t>();
    const auto heads = config_["num_attention_heads"].get<std::int64_t>();
    if (heads == 0 || hidden % heads != 0) {
      return fail(StatusCode::kInvalidArgument,
                  "key {}: expected a divisor of the width {}, for {} is missing, got {}",
                  key("attention.head_count"), hidden, key("attention.key_length"), heads);
    }
    config_["head_dim"] = hidden / heads;
  } else {
    KAKEYA_TRY(copy("attention.key_length", "head_dim"));
  }
  const auto head_dim = config_["head_dim"].get<std::int64_t>();
  double scalar = static_cast<double>(head_dim);
  if (architecture_ == GgufArchitecture::kGemma3) {
    // Published files have no key: the largest, of 62 layers, divides by another root than others.
    constexpr std::int64_t kLayersOfLargest = 62;
    const auto heads = config_["num_attention_heads"].get<std::int64_t>();
    if (layers_ == kLayersOfLargest && heads > 0) {
      scalar = config_["hidden_size"].get<double>() / static_cast<double>(heads);
    }
    if (has("attention.scale")) {
      KAKEYA_ASSIGN_OR_RETURN(const double scale, number("attention.scale"));
      if (scale > 0.0) scalar = 1.0 / (scale * scale);
    }
    config_["query_pre_attn_scalar"] = scalar;
  }
  if (scalar > 0.0) KAKEYA_TRY(require_attention_scale(1.0 / std::sqrt(scalar)));
  KAKEYA_TRY(require_if_there("attention.value_length", head_dim));
  return require_if_there("rope.dimension_count", head_dim);
}

Status GgufConfigReader::read_rope(const Family* family) {
  const bool may_be_missing = family != nullptr && family->defaults.rope_theta == kDefaultBase;
  config_["rope_theta"] = kDefaultBase;
  if (!may_be_missing || has("rope.freq_base")) {
    KAKEYA_ASSIGN_OR_RETURN(config_["rope_theta"], number("rope.freq_base"));
  }
  if (family != nullptr && family->defaults.rope_local_base_freq != 0.0) {
    config_["rope_local_base_freq"] = family->defaults.rope_local_base_freq;
    KAKEYA_TRY(copy_number_if_there("rope.freq_base_swa", config_["rope_local_base_freq"]));
  }
  Json scaling;
  KAKEYA_TRY(read_rope_scaling(scaling));
  if (checkpoint_.find(kGgufRopeFactors) != nullptr) {
    if (!scaling.is_null()) {
      return fail(StatusCode::kUnimplemented, "{}: expected none beside the scaling of {}",
                  kGgufRopeFactors, key("rope.scaling.type"));
    }
    KAKEYA_ASSIGN_OR_RETURN(const auto divisors,
                            rope_divisors(config_["head_dim"].get<std::int64_t>() / 2));
    if (const auto known = published_scaling(config_["rope_theta"].get<double>(), divisors)) {
      scaling = {{"rope_type", "llama3"},
                 {"factor", known->factor},
                 {"low_freq_factor", known->low_freq_factor},
                 {"high_freq_factor", known->high_freq_factor},
                 {"original_max_position_embeddings", known->original_max_position_embeddings}};
    } else {
      scaling = {{"rope_type", "divisors"}, {"divisors", divisors}};
    }
  }
  if (!scaling.is_null()) config_["rope_scaling"] = std::move(scaling);
  return {};
}

// Leaves null where nothing is scaled.
Status GgufConfigReader::read_rope_scaling(Json& scaling) {
  constexpr std::string_view kOldFactor = "rope.scale_linear";
  if (!has("rope.scaling.type") && has(kOldFactor)) {
    KAKEYA_ASSIGN_OR_RETURN(const double factor, number(kOldFactor));
    if (factor != 1.0) scaling = {{"rope_type", "linear"}, {"factor", factor}};
    return {};
  }
  KAKEYA_ASSIGN_OR_RETURN(const auto type, file_.text_or(key("rope.scaling.type"), "none"));
  if (type == "none") return require_no_scaling();
  // An unknown type is refused with the rest of the configuration.
  scaling["rope_type"] = printable(type);
  return copy_number_if_there("rope.scaling.factor", scaling["factor"]);
}

// Tensors tell of which projections there is a bias.
Status GgufConfigReader::read_biases(const Family& family) {
  const bool by_field = family.biases == Biases::kByField;
  config_["attention_bias"] = family.biases == Biases::kQkv ||
                              (by_field && checkpoint_.find("blk.0.attn_q.bias") != nullptr);
  if (by_field) config_["mlp_bias"] = checkpoint_.find("blk.0.ffn_gate.bias") != nullptr;
  return {};
}

Status GgufConfigReader::read_windows(const Family& family) {
  constexpr std::string_view kWindow = "attention.sliding_window";
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  if (family.windows == Windows::kNone) return {};
  if (!has(kWindow)) {
    if (family.windows == Windows::kByLayerType) {
      set_layer_types(std::vector<bool>(static_cast<std::size_t>(layers_)));
    }
    return {};
  }
  KAKEYA_TRY(copy(kWindow, "sliding_window"));
  if (family.windows == Windows::kAllLayers) {
    config_["model_type"] = "mistral";
    config_["architectures"] = {"MistralForCausalLM"};
    return {};
  }
  if (!has(kPattern)) return {};
  if (file_.find_value(key(kPattern))->type != GgufValueType::kArray) {
    return copy(kPattern, "sliding_window_pattern");
  }
  KAKEYA_ASSIGN_OR_RETURN(const auto sliding, sliding_layers());
  set_layer_types(sliding);
  return {};
}

Status GgufConfigReader::read_experts(const Family& family) {
  KAKEYA_TRY(copy_number_if_there("final_logit_softcapping", config_["final_logit_softcapping"]));
  if (family.experts != Experts::kInsteadOfMlp) return require_if_there("expert_count", 0);
  KAKEYA_TRY(copy("expert_count", "num_experts"));
  KAKEYA_TRY(copy("expert_used_count", "num_experts_per_tok"));
  KAKEYA_TRY(copy("expert_feed_forward_length", "moe_intermediate_size"));
  KAKEYA_TRY(require_if_there("expert_shared_count", 0));
  KAKEYA_TRY(require_if_there("expert_shared_feed_forward_length", 0));
  KAKEYA_TRY(reject({"expert_weights_scale", "expert_gating_func"}));
  KAKEYA_ASSIGN_OR_RETURN(config_["norm_topk_prob"],
                          file_.boolean_or(key("expert_weights_norm"), true));
  return {};
}

}  // namespace kakeya
