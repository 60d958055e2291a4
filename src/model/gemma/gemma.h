// Gemma 3 and Gemma 4: the MoE, dense and E variants of one decoder. Equations: transformers,
// modeling_gemma3.py and modeling_gemma4.py; followed step by step in docs/forward-pass.md.
#pragma once

#include <memory>
#include <vector>

#include "model/attention.h"
#include "model/decoder.h"
#include "model/mlp.h"
#include "model/weight_loader.h"

namespace kakeya::gemma {

// Loads all weights. On an error the loader's status tells it and the result is unusable.
std::unique_ptr<Decoder> load(const ModelConfig& config, WeightLoader& loader, Compute compute);

// The router and experts that stand beside the dense MLP of a MoE layer.
struct MoeWeights {
  WeightVector pre_feedforward_layernorm_2;   // [D]
  WeightVector post_feedforward_layernorm_1;  // [D]
  WeightVector post_feedforward_layernorm_2;  // [D]
  WeightVector router_scale;                  // [D], with the factor D^-1/2 folded in
  WeightVector per_expert_scale;              // [X]
  RoutedExperts experts;
};

// The weights with which a layer of an E-model uses its slice of the per-layer inputs.
struct PerLayerInputWeights {
  std::unique_ptr<Matrix> per_layer_input_gate;  // [P, D]
  std::unique_ptr<Matrix> per_layer_projection;  // [D, P]
  WeightVector post_per_layer_input_norm;        // [D]
};

struct LayerWeights {
  AttentionWeights self_attn;
  AttentionShape shape;
  bool is_sliding = false;
  WeightVector input_layernorm;             // [D]
  WeightVector post_attention_layernorm;    // [D]
  WeightVector pre_feedforward_layernorm;   // [D]
  WeightVector post_feedforward_layernorm;  // [D]
  MlpWeights mlp;
  MoeWeights moe;                  // empty but for MoE models
  PerLayerInputWeights per_layer;  // empty but for E-models
  float layer_scalar = 1.0F;
};

class Gemma final : public Decoder {
 public:
  Gemma(const ModelConfig& config, WeightLoader& loader, Compute compute);

  void forward(const Batch& batch,
               Executor& executor,
               Activations& activations,
               const ForwardOutput& output) const override;

  const Matrix& embed_tokens() const override { return *embed_tokens_; }
  const Matrix& lm_head() const override {
    return lm_head_ != nullptr ? *lm_head_ : *embed_tokens_;
  }
  float embed_scale() const override;

 private:
  LayerWeights load_layer(std::int64_t layer, WeightLoader& loader, Compute compute) const;
  MoeWeights load_moe(const std::string& prefix, WeightLoader& loader, Compute compute) const;

  void make_per_layer_inputs(Executor& executor, Activations& a) const;
  void decoder_layer(std::int64_t layer,
                     const Batch& batch,
                     Executor& executor,
                     Activations& a) const;
  void feed_forward(const LayerWeights& layer, Executor& executor, Activations& a) const;
  void mixture_of_experts(const LayerWeights& layer, Executor& executor, Activations& a) const;
  void add_per_layer_input(std::int64_t layer, Executor& executor, Activations& a) const;

  std::unique_ptr<Matrix> embed_tokens_;  // [V, D]
  std::unique_ptr<Matrix> lm_head_;       // [V, D]; null when tied
  WeightVector norm_;                     // [D]
  std::vector<LayerWeights> layers_;
  WeightVector inverse_frequencies_sliding_;
  WeightVector inverse_frequencies_full_;
  ConstVector rotated_sliding_;  // of those, the pairs that rotate
  ConstVector rotated_full_;
  // E-models only.
  std::unique_ptr<Matrix> embed_tokens_per_layer_;      // [V, L * P]
  std::unique_ptr<Matrix> per_layer_model_projection_;  // [L * P, D]
  WeightVector per_layer_projection_norm_;              // [P]
};

}  // namespace kakeya::gemma
