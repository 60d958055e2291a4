// The decoder of Llama, Mistral, Qwen2 and Qwen3. Equations: transformers, modeling_llama.py and
// the others of these names.
#pragma once

#include <memory>
#include <vector>

#include "model/decoder.h"
#include "model/llama/layer.h"
#include "model/weight_loader.h"

namespace kakeya::llama {

// Loads all weights. On an error the loader's status tells it and the result is unusable.
std::unique_ptr<Decoder> load(const ModelConfig& config, WeightLoader& loader, Compute compute);

class Llama final : public Decoder {
 public:
  Llama(const ModelConfig& config, WeightLoader& loader, Compute compute);

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

}  // namespace kakeya::llama
