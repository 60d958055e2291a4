// Qwen3 dense. Equations: transformers, modeling_qwen3.py.
#pragma once

#include <memory>
#include <vector>

#include "model/decoder.h"
#include "model/qwen3/layer.h"
#include "model/weight_loader.h"

namespace kakeya::qwen3 {

// Loads all weights. On an error the loader's status tells it and the result is unusable.
std::unique_ptr<Decoder> load(const ModelConfig& config, WeightLoader& loader, Compute compute);

class Qwen3 final : public Decoder {
 public:
  Qwen3(const ModelConfig& config, WeightLoader& loader, Compute compute);

  void forward(const Batch& batch,
               Executor& executor,
               Activations& activations,
               const ForwardOutput& output) const override;

  const Matrix& embed_tokens() const override { return *embed_tokens_; }
  const Matrix& lm_head() const override {
    return lm_head_ != nullptr ? *lm_head_ : *embed_tokens_;
  }
  float embed_scale() const override { return 1.0F; }

 private:
  std::unique_ptr<Matrix> embed_tokens_;  // [V, D]
  std::unique_ptr<Matrix> lm_head_;       // [V, D]; null when tied
  WeightVector norm_;                     // [D]
  std::vector<LayerWeights> layers_;
  WeightVector inverse_frequencies_;
};

}  // namespace kakeya::qwen3
