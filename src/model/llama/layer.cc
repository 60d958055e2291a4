#include "model/llama/layer.h"

#include <fmt/format.h>

#include <vector>

#include "formats/families.h"

namespace kakeya::llama {
namespace {

constexpr GateActivation kActivation = GateActivation::kSilu;

MoeWeights load_moe(const std::string& prefix,
                    const ModelConfig& config,
                    WeightLoader& loader,
                    Compute compute) {
  MoeWeights w;
  w.experts = load_experts(loader, prefix + "gate.weight", prefix + "experts.",
                           config.moe_intermediate_size, compute);
  w.per_expert_scale =
      loader.constant(std::vector<float>(static_cast<std::size_t>(config.num_experts), 1.0F));
  return w;
}

}  // namespace

LayerWeights load_layer(const ModelConfig& config,
                        std::int64_t layer,
                        std::int64_t cache_index,
                        WeightLoader& loader,
                        Compute compute) {
  const Family& family = family_of(config.architecture);
  const std::string prefix = fmt::format("layers.{}.", layer);
  LayerWeights w;
  w.shape = {.num_heads = config.num_attention_heads,
             .num_kv_heads = config.layer_kv_heads(layer),
             .head_dim = config.layer_head_dim(layer),
             .scale = config.attention_scale(layer),
             .compute = compute,
             .normalise_values = false,
             .rms_norm_eps = config.rms_norm_eps,
             .cache_index = cache_index};
  w.self_attn = load_attention(
      loader, prefix + "self_attn.",
      {.head_norms = family.head_norms, .qkv_bias = config.qkv_bias, .o_bias = config.o_bias},
      compute);
  w.input_layernorm = loader.vector(prefix + "input_layernorm.weight");
  w.post_attention_layernorm = loader.vector(prefix + "post_attention_layernorm.weight");
  if (config.enable_moe_block) {
    w.moe = load_moe(prefix + "mlp.", config, loader, compute);
  } else {
    w.mlp = load_mlp(loader, prefix + "mlp.", config.mlp_bias, compute);
  }
  return w;
}

void decoder_layer(const LayerWeights& w,
                   const RopeTable& rope,
                   const Batch& batch,
                   Executor& executor,
                   Activations& a) {
  const float eps = w.shape.rms_norm_eps;
  executor.rms_norm(a.hidden, w.input_layernorm.data(), eps, a.normed);
  attend(w.self_attn, w.shape, rope, batch, executor, a, a.branch);
  executor.add(a.hidden, a.branch, 1.0F, a.hidden);

  executor.rms_norm(a.hidden, w.post_attention_layernorm.data(), eps, a.normed);
  if (w.moe.experts.router != nullptr) {
    run_experts(w.moe.experts, w.moe.per_expert_scale.data(), a.normed, a.normed, kActivation,
                executor, a, a.branch);
  } else {
    mlp(w.mlp, a.normed, kActivation, executor, a, a.branch);
  }
  executor.add(a.hidden, a.branch, 1.0F, a.hidden);
}

}  // namespace kakeya::llama
