#include "model/qwen3/qwen3.h"

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
    layers_.push_back(load_layer(config, l, cache_index(l), loader, compute));
    layers_.back().shape.inverse_frequencies = inverse_frequencies_;
  }
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
  executor.embed(*embed_tokens_, input.ids, embed_scale(), a.hidden);
  taps.write(kTapEmbedding, a.hidden);
  for (std::int64_t l = 0; l < config().num_hidden_layers; ++l) {
    decoder_layer(layers_[static_cast<std::size_t>(l)], a.rope_full, cache, executor, a);
    taps.write(l, a.hidden);
  }
  executor.rms_norm(a.hidden, norm_.data(), config().rms_norm_eps, a.normed);
  taps.write(config().num_hidden_layers, a.normed);
  if (output.logits.count == 0) return;
  executor.matmul(last_rows(a.normed, output.logits.count), lm_head(), output.logits);
}

}  // namespace kakeya::qwen3
