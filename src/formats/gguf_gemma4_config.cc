// The configuration of Gemma 4 in a GGUF file.
#include <algorithm>
#include <cmath>
#include <optional>

#include "formats/gguf_config_reader.h"

namespace kakeya {

Status GgufConfigReader::read_gemma4() {
  KAKEYA_TRY(require_attention_scale(1.0));
  KAKEYA_TRY(read_gemma4_layers());
  KAKEYA_TRY(read_gemma4_heads());
  KAKEYA_TRY(read_gemma4_widths());
  KAKEYA_TRY(read_gemma4_rope());
  return read_gemma4_parts();
}

// Heads of keys and values are as many in all layers of a type. Values of full layers are their
// keys where no layer that has keys of its own has values.
Status GgufConfigReader::read_gemma4_layers() {
  KAKEYA_ASSIGN_OR_RETURN(const auto sliding, sliding_layers());
  KAKEYA_ASSIGN_OR_RETURN(const auto kv_heads, by_layer("attention.head_count_kv"));
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t shared,
                          file_.integer_or(key("attention.shared_kv_layers"), 0, kSizes));
  set_layer_types(sliding);
  bool any_keys = false;
  bool any_values = false;
  for (std::int64_t layer = 0; layer < layers_; ++layer) {
    const auto i = static_cast<std::size_t>(layer);
    const char* field = sliding[i] ? "num_key_value_heads" : "num_global_key_value_heads";
    if (!config_.contains(field)) config_[field] = kv_heads[i];
    if (config_[field] != kv_heads[i]) {
      return fail(StatusCode::kUnimplemented,
                  "key {}: expected as many for all {} layers, got {} and {}",
                  key("attention.head_count_kv"), sliding[i] ? "sliding" : "full",
                  config_[field].get<std::int64_t>(), kv_heads[i]);
    }
    if (sliding[i] || layer >= layers_ - shared) continue;
    any_keys = true;
    any_values |= checkpoint_.find(fmt::format("blk.{}.attn_v.weight", layer)) != nullptr;
  }
  config_["attention_k_eq_v"] = any_keys && !any_values;
  config_["num_kv_shared_layers"] = shared;
  return copy("attention.sliding_window", "sliding_window");
}

Status GgufConfigReader::read_gemma4_heads() {
  KAKEYA_TRY(copy("attention.key_length", "global_head_dim"));
  KAKEYA_TRY(copy("attention.key_length_swa", "head_dim"));
  const auto full = config_["global_head_dim"].get<std::int64_t>();
  const auto sliding = config_["head_dim"].get<std::int64_t>();
  KAKEYA_TRY(require_if_there("attention.value_length", full));
  KAKEYA_TRY(require_if_there("attention.value_length_swa", sliding));
  KAKEYA_TRY(require_if_there("rope.dimension_count", full));
  return require_if_there("rope.dimension_count_swa", sliding);
}

Status GgufConfigReader::read_gemma4_widths() {
  KAKEYA_ASSIGN_OR_RETURN(const auto widths, by_layer("feed_forward_length"));
  const bool wide = widths.back() == 2 * widths.front();
  const auto shared = config_["num_kv_shared_layers"].get<std::int64_t>();
  config_["intermediate_size"] = widths.front();
  config_["use_double_wide_mlp"] = wide;
  for (std::int64_t layer = 0; layer < layers_; ++layer) {
    const std::int64_t got = widths[static_cast<std::size_t>(layer)];
    const std::int64_t expected = widths.front() * (wide && layer >= layers_ - shared ? 2 : 1);
    if (got == expected) continue;
    return fail(StatusCode::kUnimplemented, "key {}: expected {} for layer {}, got {}",
                key("feed_forward_length"), expected, layer, got);
  }
  return {};
}

Status GgufConfigReader::read_gemma4_rope() {
  KAKEYA_TRY(require_no_scaling());
  KAKEYA_ASSIGN_OR_RETURN(const double full, number("rope.freq_base"));
  Json sliding = 1e4;
  KAKEYA_TRY(copy_number_if_there("rope.freq_base_swa", sliding));
  KAKEYA_ASSIGN_OR_RETURN(const double rotating, rotating_part());
  config_["rope_parameters"] = {
      {"full_attention",
       {{"rope_type", "proportional"}, {"rope_theta", full}, {"partial_rotary_factor", rotating}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", sliding}}}};
  return {};
}

// The part of the pairs of a full layer that rotates. A file has a divisor for the frequency of
// each pair: 1, then what makes the frequency vanish. Anything else would be another network.
Result<double> GgufConfigReader::rotating_part() const {
  // Pairs that do not rotate are divided by this or more: their angles vanish in f32.
  constexpr float kNoRotation = 1e20F;
  const std::int64_t pairs = config_["global_head_dim"].get<std::int64_t>() / 2;
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<float> factors, rope_divisors(pairs));
  const auto still =
      std::find_if(factors.begin(), factors.end(), [](float factor) { return factor != 1.0F; });
  if (!std::all_of(still, factors.end(), [](float each) { return each >= kNoRotation; })) {
    return fail(StatusCode::kUnimplemented, "{}: expected ones, then numbers of {} or more",
                kGgufRopeFactors, kNoRotation);
  }
  const std::int64_t rotating = still - factors.begin();
  double part = static_cast<double>(rotating) / static_cast<double>(pairs);
  // Counting the pairs again rounds down.
  while (static_cast<std::int64_t>(part * static_cast<double>(2 * pairs) / 2.0) < rotating) {
    part = std::nextafter(part, 1.0);
  }
  return part;
}

Status GgufConfigReader::read_gemma4_parts() {
  KAKEYA_TRY(copy_number_if_there("final_logit_softcapping", config_["final_logit_softcapping"]));
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t experts,
                          file_.integer_or(key("expert_count"), 0, kSizes));
  config_["enable_moe_block"] = experts > 0;
  if (experts > 0) {
    config_["num_experts"] = experts;
    KAKEYA_TRY(copy("expert_used_count", "top_k_experts"));
    KAKEYA_TRY(copy("expert_feed_forward_length", "moe_intermediate_size"));
  }
  KAKEYA_TRY(copy_if_there("embedding_length_per_layer_input", "hidden_size_per_layer_input"));
  if (config_.value("hidden_size_per_layer_input", std::int64_t{0}) == 0) return {};
  KAKEYA_ASSIGN_OR_RETURN(config_["vocab_size_per_layer_input"],
                          rows_of("per_layer_token_embd.weight"));
  return {};
}

}  // namespace kakeya
