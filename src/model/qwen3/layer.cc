#include "model/qwen3/layer.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace kakeya::qwen3 {

LayerWeights load_layer(const ModelConfig& config,
                        std::int64_t layer,
                        std::int64_t cache_index,
                        WeightLoader& loader,
                        Compute compute) {
  const std::string prefix = fmt::format("layers.{}.", layer);
  const std::int64_t head_dim = config.layer_head_dim(layer);
  LayerWeights w;
  w.shape = {.num_heads = config.num_attention_heads,
             .num_kv_heads = config.layer_kv_heads(layer),
             .head_dim = head_dim,
             .scale = 1.0F / std::sqrt(static_cast<float>(head_dim)),
             .compute = compute,
             .normalise_values = false,
             .rms_norm_eps = config.rms_norm_eps,
             .cache_index = cache_index};
  w.self_attn = load_attention(loader, prefix + "self_attn.", {}, compute);
  w.input_layernorm = loader.vector(prefix + "input_layernorm.weight");
  w.post_attention_layernorm = loader.vector(prefix + "post_attention_layernorm.weight");
  w.gate_proj = loader.matrix(prefix + "mlp.gate_proj.weight", compute);
  w.up_proj = loader.matrix(prefix + "mlp.up_proj.weight", compute);
  w.down_proj = loader.matrix(prefix + "mlp.down_proj.weight", compute);
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
  executor.gated_matmul(a.normed, *w.gate_proj, *w.up_proj, GateActivation::kSilu, a.mlp_hidden);
  executor.matmul(a.mlp_hidden, *w.down_proj, a.branch);
  executor.add(a.hidden, a.branch, 1.0F, a.hidden);
}

}  // namespace kakeya::qwen3
