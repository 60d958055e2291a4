#include "model/qwen3/qwen3.h"

#include <fmt/format.h>

#include <cmath>

namespace kakeya::qwen3 {

std::unique_ptr<Decoder> load(const ModelConfig& config, WeightLoader& loader, Compute compute) {
  return std::make_unique<Qwen3>(config, loader, compute);
}

Qwen3::Qwen3(const ModelConfig& config, WeightLoader& loader, Compute compute)
    : Decoder(config),
      inverse_frequencies_(inverse_frequencies(config.rope_full, config.global_head_dim)) {
  embed_tokens_ = loader.matrix("embed_tokens.weight", compute);
  if (!config.tie_word_embeddings) lm_head_ = loader.matrix("lm_head.weight", compute);
  norm_ = loader.vector("norm.weight");
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l) {
    layers_.push_back(load_layer(l, loader, compute));
  }
}

LayerWeights Qwen3::load_layer(std::int64_t layer, WeightLoader& loader, Compute compute) const {
  const std::string prefix = fmt::format("layers.{}.", layer);
  const std::int64_t head_dim = config().layer_head_dim(layer);
  LayerWeights w;
  w.shape = {.num_heads = config().num_attention_heads,
             .num_kv_heads = config().layer_kv_heads(layer),
             .head_dim = head_dim,
             .scale = 1.0F / std::sqrt(static_cast<float>(head_dim)),
             .normalise_values = false,
             .rms_norm_eps = config().rms_norm_eps,
             .cache_index = cache_index(layer)};
  w.self_attn = load_attention(loader, prefix + "self_attn.", true, false, compute);
  w.input_layernorm = loader.vector(prefix + "input_layernorm.weight");
  w.post_attention_layernorm = loader.vector(prefix + "post_attention_layernorm.weight");
  w.gate_proj = loader.matrix(prefix + "mlp.gate_proj.weight", compute);
  w.up_proj = loader.matrix(prefix + "mlp.up_proj.weight", compute);
  w.down_proj = loader.matrix(prefix + "mlp.down_proj.weight", compute);
  return w;
}

void Qwen3::forward(const ForwardInput& input,
                    KvCache& cache,
                    Executor& executor,
                    Activations& activations,
                    const ForwardOutput& output) const {
  const auto rows = static_cast<std::int64_t>(input.ids.size());
  Activations a = activations.with_rows(rows);
  TapWriter taps(input.taps, output.taps, executor);

  executor.make_rope_table(cache.length(), rows, inverse_frequencies_, a.rope_full);
  executor.embed(*embed_tokens_, input.ids, 1.0F, a.hidden);
  taps.write(kTapEmbedding, a.hidden);
  for (std::int64_t l = 0; l < config().num_hidden_layers; ++l) {
    decoder_layer(layers_[static_cast<std::size_t>(l)], cache, executor, a);
    taps.write(l, a.hidden);
  }
  executor.rms_norm(a.hidden, norm_.data(), config().rms_norm_eps, a.normed);
  taps.write(config().num_hidden_layers, a.normed);
  if (output.logits.count == 0) return;
  const Matrix& head = lm_head_ != nullptr ? *lm_head_ : *embed_tokens_;
  executor.matmul(last_rows(a.normed, output.logits.count), head, output.logits);
}

void Qwen3::decoder_layer(const LayerWeights& w,
                          KvCache& cache,
                          Executor& executor,
                          Activations& a) const {
  const float eps = config().rms_norm_eps;
  executor.rms_norm(a.hidden, w.input_layernorm.data(), eps, a.normed);
  attend(w.self_attn, w.shape, a.rope_full, cache, executor, a, a.branch);
  executor.add(a.hidden, a.branch, 1.0F, a.hidden);

  executor.rms_norm(a.hidden, w.post_attention_layernorm.data(), eps, a.normed);
  executor.gated_matmul(a.normed, *w.gate_proj, *w.up_proj, GateActivation::kSilu, a.mlp_hidden);
  executor.matmul(a.mlp_hidden, *w.down_proj, a.branch);
  executor.add(a.hidden, a.branch, 1.0F, a.hidden);
}

}  // namespace kakeya::qwen3
