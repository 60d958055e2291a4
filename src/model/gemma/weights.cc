// Loading of Gemma: which tensors there are, by their checkpoint names.
#include <fmt/format.h>

#include <cmath>

#include "formats/families.h"
#include "model/gemma/gemma.h"

namespace kakeya::gemma {
namespace {

// The pairs that rotate: partial rotary embeddings end in zeros.
ConstVector rotated(ConstVector frequencies, const RopeParameters& rope, std::int64_t head_dim) {
  const std::vector<float> values = inverse_frequencies(rope, head_dim);
  while (frequencies.size > 0 && values[static_cast<std::size_t>(frequencies.size) - 1] == 0.0F) {
    --frequencies.size;
  }
  return frequencies;
}

}  // namespace

std::unique_ptr<Decoder> load(const ModelConfig& config, WeightLoader& loader, Compute compute) {
  return std::make_unique<Gemma>(config, loader, compute);
}

Gemma::Gemma(const ModelConfig& config, WeightLoader& loader, Compute compute)
    : Decoder(config),
      inverse_frequencies_sliding_(
          loader.constant(inverse_frequencies(config.rope_sliding, config.head_dim))),
      inverse_frequencies_full_(
          loader.constant(inverse_frequencies(config.rope_full, config.global_head_dim))),
      rotated_sliding_(rotated(inverse_frequencies_sliding_, config.rope_sliding, config.head_dim)),
      rotated_full_(rotated(inverse_frequencies_full_, config.rope_full, config.global_head_dim)) {
  embed_tokens_ = loader.matrix("embed_tokens.weight", compute);
  if (!config.tie_word_embeddings) lm_head_ = loader.matrix("lm_head.weight", compute);
  norm_ = loader.vector("norm.weight");
  if (config.hidden_size_per_layer_input > 0) {
    embed_tokens_per_layer_ = loader.table("embed_tokens_per_layer.weight", compute);
    per_layer_model_projection_ = loader.matrix("per_layer_model_projection.weight", compute);
    per_layer_projection_norm_ = loader.vector("per_layer_projection_norm.weight");
  }
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l) {
    layers_.push_back(load_layer(l, loader, compute));
  }
}

LayerWeights Gemma::load_layer(std::int64_t layer, WeightLoader& loader, Compute compute) const {
  const Family& family = family_of(config().architecture);
  const std::string prefix = fmt::format("layers.{}.", layer);
  LayerWeights w;
  w.is_sliding = config().is_sliding(layer);
  w.shape = {.num_heads = config().num_attention_heads,
             .num_kv_heads = config().layer_kv_heads(layer),
             .head_dim = config().layer_head_dim(layer),
             .scale = config().attention_scale(layer),
             .compute = compute,
             .normalise_values = family.value_norms,
             .rms_norm_eps = config().rms_norm_eps,
             .cache_index = cache_index(layer)};
  w.shape.inverse_frequencies = w.is_sliding ? rotated_sliding_ : rotated_full_;
  const AttentionTensors tensors = {.owns_kv = config().owns_kv(layer),
                                    .values_are_keys = config().values_are_keys(layer)};
  w.self_attn = load_attention(loader, prefix + "self_attn.", tensors, compute);
  w.input_layernorm = loader.vector(prefix + "input_layernorm.weight");
  w.post_attention_layernorm = loader.vector(prefix + "post_attention_layernorm.weight");
  w.pre_feedforward_layernorm = loader.vector(prefix + "pre_feedforward_layernorm.weight");
  w.post_feedforward_layernorm = loader.vector(prefix + "post_feedforward_layernorm.weight");
  w.mlp = load_mlp(loader, prefix + "mlp.", config().mlp_bias, compute);
  if (config().enable_moe_block) w.moe = load_moe(prefix, loader, compute);
  if (config().hidden_size_per_layer_input > 0) {
    w.per_layer = {
        .per_layer_input_gate = loader.matrix(prefix + "per_layer_input_gate.weight", compute),
        .per_layer_projection = loader.matrix(prefix + "per_layer_projection.weight", compute),
        .post_per_layer_input_norm = loader.vector(prefix + "post_per_layer_input_norm.weight")};
  }
  if (family.layer_scalars) w.layer_scalar = loader.scalar(prefix + "layer_scalar");
  return w;
}

MoeWeights Gemma::load_moe(const std::string& prefix, WeightLoader& loader, Compute compute) const {
  MoeWeights w;
  w.pre_feedforward_layernorm_2 = loader.vector(prefix + "pre_feedforward_layernorm_2.weight");
  w.post_feedforward_layernorm_1 = loader.vector(prefix + "post_feedforward_layernorm_1.weight");
  w.post_feedforward_layernorm_2 = loader.vector(prefix + "post_feedforward_layernorm_2.weight");
  // norm(h) * scale * D^-1/2 is one norm with the weight scale * D^-1/2.
  const float factor = 1.0F / std::sqrt(static_cast<float>(config().hidden_size));
  w.router_scale = loader.vector(prefix + "router.scale", factor);
  w.per_expert_scale = loader.vector(prefix + "router.per_expert_scale");
  w.experts = load_experts(loader, prefix + "router.proj.weight", prefix + "experts.",
                           config().moe_intermediate_size, compute);
  return w;
}

}  // namespace kakeya::gemma
