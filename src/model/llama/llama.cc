#include "model/llama/llama.h"

namespace kakeya::llama {

std::unique_ptr<Decoder> load(const ModelConfig& config, WeightLoader& loader, Compute compute) {
  return std::make_unique<Llama>(config, loader, compute);
}

Llama::Llama(const ModelConfig& config, WeightLoader& loader, Compute compute)
    : Decoder(config),
      inverse_frequencies_(
          loader.constant(inverse_frequencies(config.rope_full, config.global_head_dim))) {
  embed_tokens_ = loader.matrix("embed_tokens.weight", compute);
  if (!config.tie_word_embeddings) lm_head_ = loader.matrix("lm_head.weight", compute);
  norm_ = loader.vector("norm.weight");
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l) {
    layers_.push_back(load_layer(config, l, cache_index(l), loader, compute));
    layers_.back().shape.inverse_frequencies = inverse_frequencies_;
  }
}

void Llama::forward(const Batch& batch,
                    Executor& executor,
                    Activations& activations,
                    const ForwardOutput& output) const {
  Activations a = activations.with_rows(batch.rows());
  TapWriter taps(output.tap_points, output.taps, executor);

  executor.make_rope_table(inverse_frequencies_, a.rope_full);
  executor.embed(*embed_tokens_, embed_scale(), a.hidden);
  taps.write(kTapEmbedding, a.hidden);
  for (std::int64_t l = 0; l < config().num_hidden_layers; ++l) {
    decoder_layer(layers_[static_cast<std::size_t>(l)], a.rope_full, batch, executor, a);
    taps.write(l, a.hidden);
  }
  write_outputs(norm_, batch, executor, a, taps, output);
}

}  // namespace kakeya::llama
