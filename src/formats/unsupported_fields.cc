#include "formats/unsupported_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <string_view>

#include "base/status.h"

namespace kakeya {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// A field and the number with which it changes nothing; kNone: no number does. False and empty
// containers never do, and true is 1.
struct Unsupported {
  std::string_view key;
  double neutral = kNone;
};

constexpr Unsupported kNetworks[] = {
    // Factors and caps: Gemma 2, Cohere, Granite, MiniCPM, Grok, Falcon-H1, Llama 4.
    {"attn_logit_softcapping", 0},
    {"attn_logits_soft_cap", 0},
    {"attention_logit_cap", 0},
    {"logits_soft_cap", 0},
    {"router_logit_softcapping", 0},
    {"query_pre_attn_scalar"},
    {"attention_multiplier"},
    {"attention_scale"},
    {"attn_scale"},
    {"attn_output_multiplier", 1},
    {"attn_temperature_tuning", 0},
    {"attention_in_multiplier", 1},
    {"attention_out_multiplier", 1},
    {"attention_value_scale", 1},
    {"embedding_multiplier", 1},
    {"embedding_multiplier_scale", 1},
    {"embedding_scale", 1},
    {"scale_embedding", 0},
    {"scale_emb", 1},
    {"scale_depth"},
    {"dim_model_base"},
    {"key_multiplier", 1},
    {"lm_head_multiplier", 1},
    {"logit_scale", 1},
    {"logits_scaling", 1},
    {"mlp_multipliers"},
    {"mup_base_width"},
    {"mup_embedding_multiplier", 1},
    {"mup_width_multiplier", 1},
    {"output_multiplier_scale", 1},
    {"residual_multiplier", 1},
    {"residual_scale", 1},
    {"clip_qkv"},
    // Biases.
    {"add_bias_linear", 0},
    {"add_qkv_bias", 0},
    {"attention_out_bias", 0},
    {"attn_bias", 0},
    {"bias", 0},
    {"lm_head_bias", 0},
    {"mlp_bias", 0},
    {"no_bias", 1},
    {"o_bias", 0},
    {"qkv_bias", 0},
    {"use_bias", 0},
    {"use_qkv_bias", 0},
    // Norms and the order of parts.
    {"norm_head", 0},
    {"parallel_attn", 0},
    {"parallel_residual", 0},
    {"use_parallel_residual", 0},
    {"qk_norm", 1},
    {"use_qk_norm", 1},
    // Positions.
    {"alibi", 0},
    {"use_alibi", 0},
    {"irope", 0},
    {"no_rope_layer_interval", 0},
    {"no_rope_layers"},
    {"nope_layer_interval", 0},
    {"partial_rotary_factor", 1},
    {"rope_interleave", 0},
    {"rope_interleaved", 0},
    {"rope_local_factor", 1},
    {"rope_pct", 1},
    {"rotary_dim"},
    {"rotary_pct", 1},
    // Who sees whom, and layers of other kinds.
    {"attention_chunk_size", 0},
    {"attention_sink_size", 0},
    {"attn_output_gate", 0},
    {"full_attention_interval", 1},
    {"is_encoder_decoder", 0},
    {"kv_lora_rank", 0},
    {"linear_num_key_heads", 0},
    {"linear_num_value_heads", 0},
    {"mamba_d_state", 0},
    {"q_lora_rank", 0},
    {"qk_nope_head_dim", 0},
    {"qk_rope_head_dim", 0},
    {"v_head_dim"},
    // Experts of other kinds.
    {"decoder_sparse_step", 1},
    {"first_k_dense_replace", 0},
    {"mlp_only_layers"},
    {"moe_layer_freq"},
    {"n_group", 1},
    {"n_routed_experts", 0},
    {"n_shared_experts", 0},
    {"num_experts_per_tok", 0},
    {"num_local_experts", 0},
    {"num_shared_experts", 0},
    {"routed_scaling_factor", 1},
    {"router_scaling_factor", 1},
    {"shared_expert_intermediate_size", 0},
    // Gemma 3n.
    {"activation_sparsity_pattern"},
    {"altup_num_inputs", 0},
    {"laurel_rank", 0},
    // Weights coded in ways that tensors do not tell.
    {"compression_config"},
};

// Fields of Gemma 4 in the configuration of another family.
constexpr Unsupported kOnlyGemma4[] = {
    {"attention_k_eq_v", 0},
    {"enable_moe_block", 0},
    {"global_head_dim"},
    {"hidden_size_per_layer_input", 0},
    {"moe_intermediate_size", 0},
    {"num_experts", 0},
    {"num_global_key_value_heads"},
    {"num_kv_shared_layers", 0},
    {"per_layer_config"},
    {"sliding_window_pattern", 0},
    {"use_double_wide_mlp", 0},
};

// Fields that some readers of drafters know.
constexpr Unsupported kOnlyDrafters[] = {
    {"attention_sink_bias", 0}, {"backbone_rotary_base"},
    {"draft_ffn_type"},         {"is_neox_style", 1},
    {"rope_is_neox_style", 1},  {"sample_from_anchor", 0},
    {"swa_window_size"},        {"use_swa", 0},
};

// Fields that mean something in one family, where they are read.
struct Supported {
  Architecture architecture;
  std::string_view key;
};

constexpr Supported kSupported[] = {
    {Architecture::kGemma3, "query_pre_attn_scalar"},
    {Architecture::kGemma3, "sliding_window_pattern"},
    {Architecture::kLlama, "mlp_bias"},
    {Architecture::kQwen3Moe, "moe_intermediate_size"},
    {Architecture::kQwen3Moe, "num_experts"},
    {Architecture::kQwen3Moe, "num_experts_per_tok"},
    {Architecture::kQwen3Moe, "num_local_experts"},
};

constexpr Unsupported kSampling[] = {
    {"bad_words_ids"},
    {"begin_suppress_tokens"},
    {"diversity_penalty", 0},
    {"encoder_repetition_penalty", 1},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"exponential_decay_length_penalty"},
    {"min_length", 0},
    {"min_new_tokens", 0},
    {"stop_strings"},
    {"forced_bos_token_id"},
    {"forced_eos_token_id"},
    {"guidance_scale", 1},
    {"no_repeat_ngram_size", 0},
    {"num_beam_groups", 1},
    {"num_beams", 1},
    {"penalty_alpha", 0},
    {"sequence_bias"},
    {"typical_p", 1},
};

bool is_neutral(simdjson::dom::element value, double neutral) {
  bool truth = false;
  double number = 0;
  simdjson::dom::array array;
  simdjson::dom::object object;
  if (value.get(truth) == simdjson::SUCCESS) return neutral == 1.0 ? truth : !truth;
  if (value.get(number) == simdjson::SUCCESS) return number == neutral;
  if (value.get(array) == simdjson::SUCCESS) return array.size() == 0;
  if (value.get(object) == simdjson::SUCCESS) return object.size() == 0;
  return false;
}

bool is_supported(Architecture architecture, std::string_view key) {
  return std::ranges::any_of(kSupported, [&](const Supported& each) {
    return each.architecture == architecture && each.key == key;
  });
}

Status reject(const JsonFields& fields,
              Architecture architecture,
              std::span<const Unsupported> keys) {
  for (const Unsupported& each : keys) {
    const auto value = fields.find(each.key);
    if (!value || is_supported(architecture, each.key) || is_neutral(*value, each.neutral))
      continue;
    return error(StatusCode::kUnimplemented, "{}: what it stands for is not supported, got {}",
                 fields.name(each.key), describe(*value));
  }
  return {};
}

Status reject_two_sided(const JsonFields& fields, StackKind kind) {
  const auto two_sided = fields.find("use_bidirectional_attention");
  std::string_view whom;
  // Gemma 4 says "vision": among the parts of an image, which no text has.
  if (two_sided && !is_neutral(*two_sided, 0) &&
      !(two_sided->get(whom) == simdjson::SUCCESS && whom == "vision")) {
    return error(StatusCode::kUnimplemented, "{}: what it stands for is not supported, got {}",
                 fields.name("use_bidirectional_attention"), describe(*two_sided));
  }
  if (kind == StackKind::kDrafter) return {};  // it has a field of its own
  KAKEYA_ASSIGN_OR_RETURN(const bool causal, fields.boolean_or("is_causal", true));
  if (causal) return {};
  return error(StatusCode::kUnimplemented, "{}: expected true, got false",
               fields.name("is_causal"));
}

}  // namespace

Status reject_unsupported_fields(const JsonFields& fields,
                                 Architecture architecture,
                                 StackKind kind) {
  KAKEYA_TRY(reject(fields, architecture, kNetworks));
  if (architecture != Architecture::kGemma4) {
    KAKEYA_TRY(reject(fields, architecture, kOnlyGemma4));
  }
  if (kind == StackKind::kDrafter) KAKEYA_TRY(reject(fields, architecture, kOnlyDrafters));
  return reject_two_sided(fields, kind);
}

std::vector<std::string> unsupported_sampling(const JsonFields& fields) {
  std::vector<std::string> found;
  for (const Unsupported& each : kSampling) {
    const auto value = fields.find(each.key);
    if (!value || is_neutral(*value, each.neutral)) continue;
    found.push_back(fmt::format("{} {}", fields.name(each.key), describe(*value)));
  }
  return found;
}

}  // namespace kakeya
