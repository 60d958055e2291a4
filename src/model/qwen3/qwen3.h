// Qwen3 dense. Equations: transformers, modeling_qwen3.py.
#pragma once

#include <memory>
#include <vector>

#include "model/attention.h"
#include "model/decoder.h"
#include "model/weight_loader.h"

namespace kakeya::qwen3 {

// Loads all weights. On an error the loader's status tells it and the result is unusable.
std::unique_ptr<Decoder> load(const ModelConfig& config, WeightLoader& loader, Compute compute);

struct LayerWeights {
  AttentionWeights self_attn;
  AttentionShape shape;
  WeightVector input_layernorm;           // [D]
  WeightVector post_attention_layernorm;  // [D]
  std::unique_ptr<Matrix> gate_proj;      // [F, D]
  std::unique_ptr<Matrix> up_proj;        // [F, D]
  std::unique_ptr<Matrix> down_proj;      // [D, F]
};

class Qwen3 final : public Decoder {
 public:
  Qwen3(const ModelConfig& config, WeightLoader& loader, Compute compute);

  void forward(const ForwardInput& input,
               KvCache& cache,
               Executor& executor,
               Activations& activations,
               const ForwardOutput& output) const override;

 private:
  LayerWeights load_layer(std::int64_t layer, WeightLoader& loader, Compute compute) const;
  void decoder_layer(const LayerWeights& layer,
                     KvCache& cache,
                     Executor& executor,
                     Activations& a) const;

  std::unique_ptr<Matrix> embed_tokens_;  // [V, D]
  std::unique_ptr<Matrix> lm_head_;       // [V, D]; null when tied
  WeightVector norm_;                     // [D]
  std::vector<LayerWeights> layers_;
  std::vector<float> inverse_frequencies_;
};

}  // namespace kakeya::qwen3
