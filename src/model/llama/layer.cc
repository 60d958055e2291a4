#include "model/llama/layer.h"

#include <fmt/format.h>

#include <vector>

#include "formats/families.h"

namespace kakeya::llama {
namespace {

constexpr GateActivation kActivation = GateActivation::kSilu;

MlpWeights load_mlp(const std::string& prefix, bool biases, WeightLoader& loader, Compute compute) {
  MlpWeights w;
  w.gate_proj = loader.matrix(prefix + "gate_proj.weight", compute);
  w.up_proj = loader.matrix(prefix + "up_proj.weight", compute);
  w.down_proj = loader.matrix(prefix + "down_proj.weight", compute);
  if (!biases) return w;
  w.gate_bias = loader.vector(prefix + "gate_proj.bias");
  w.up_bias = loader.vector(prefix + "up_proj.bias");
  w.down_bias = loader.vector(prefix + "down_proj.bias");
  return w;
}

MoeWeights load_moe(const std::string& prefix,
                    const ModelConfig& config,
                    WeightLoader& loader,
                    Compute compute) {
  const std::int64_t width = config.moe_intermediate_size;
  const std::string experts = prefix + "experts.";
  MoeWeights w;
  // A near tie between experts must not fall to the rounding of activations, so the router is f32
  // in both compute modes, as in the published implementations.
  w.router = loader.matrix(prefix + "gate.weight", Compute::kF32);
  w.gate_proj =
      loader.expert_rows({experts + "gate_up_proj", 0, width, experts + "gate_proj"}, compute);
  w.up_proj =
      loader.expert_rows({experts + "gate_up_proj", width, width, experts + "up_proj"}, compute);
  w.down_proj = loader.matrix(experts + "down_proj", compute);
  w.per_expert_scale =
      loader.constant(std::vector<float>(static_cast<std::size_t>(config.num_experts), 1.0F));
  return w;
}

// a.branch = MLP(a.normed) = down(silu(gate z) * (up z)).
void mlp(const MlpWeights& w, Executor& executor, Activations& a) {
  if (w.gate_bias.size() == 0) {
    executor.gated_matmul(a.normed, *w.gate_proj, *w.up_proj, kActivation, a.mlp_hidden);
    executor.matmul(a.mlp_hidden, *w.down_proj, a.branch);
    return;
  }
  executor.matmul(a.normed, *w.gate_proj, a.mlp_hidden);
  executor.add_vector(a.mlp_hidden, w.gate_bias);
  executor.matmul(a.normed, *w.up_proj, a.mlp_up);
  executor.add_vector(a.mlp_up, w.up_bias);
  executor.gated_multiply(a.mlp_hidden, a.mlp_up.data, a.mlp_up.width, kActivation, a.mlp_hidden);
  executor.matmul(a.mlp_hidden, *w.down_proj, a.branch);
  executor.add_vector(a.branch, w.down_bias);
}

// a.branch = the experts of a.normed, weighed by the softmax of the logits of those chosen.
void mixture_of_experts(const MoeWeights& w, Executor& executor, Activations& a) {
  executor.matmul(a.normed, *w.router, a.router_logits);
  executor.route(a.router_logits, w.per_expert_scale.data(), a.routing);
  executor.experts(a.normed,
                   {.gate = w.gate_proj.get(), .up = w.up_proj.get(), .down = w.down_proj.get()},
                   a.routing, kActivation, a.branch);
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
    w.mlp = load_mlp(prefix + "mlp.", config.mlp_bias, loader, compute);
  }
  return w;
}

void decoder_layer(const LayerWeights& w,
                   const RopeTable& rope,
                   const Batch& batch,
                   Executor& executor,
                   Activations& a) {
  decoder_layer(w, w.shape, rope, batch, executor, a);
}

void decoder_layer(const LayerWeights& w,
                   const AttentionShape& shape,
                   const RopeTable& rope,
                   const Batch& batch,
                   Executor& executor,
                   Activations& a) {
  const float eps = w.shape.rms_norm_eps;
  executor.rms_norm(a.hidden, w.input_layernorm.data(), eps, a.normed);
  attend(w.self_attn, shape, rope, batch, executor, a, a.branch);
  executor.add(a.hidden, a.branch, 1.0F, a.hidden);

  executor.rms_norm(a.hidden, w.post_attention_layernorm.data(), eps, a.normed);
  if (w.moe.router != nullptr) {
    mixture_of_experts(w.moe, executor, a);
  } else {
    mlp(w.mlp, executor, a);
  }
  executor.add(a.hidden, a.branch, 1.0F, a.hidden);
}

}  // namespace kakeya::llama
