// The feed-forward parts that the layers of Gemma and of Llama share: the gated MLP, and routed
// experts.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "model/decoder.h"
#include "model/weight_loader.h"

namespace kakeya {

struct MlpWeights {
  std::unique_ptr<Matrix> gate_proj;  // [F, D]
  std::unique_ptr<Matrix> up_proj;    // [F, D]
  std::unique_ptr<Matrix> down_proj;  // [D, F]
  // Vectors that are added to the products; empty: nothing.
  WeightVector gate_bias;  // [F]
  WeightVector up_bias;    // [F]
  WeightVector down_bias;  // [D]
};

// Loads the tensors of `prefix` ("layers.3.mlp.").
MlpWeights load_mlp(WeightLoader& loader, const std::string& prefix, bool biases, Compute compute);

// out [T, D] = down(activation(gate z) * (up z)). Uses mlp_hidden and mlp_up of `a`.
void mlp(const MlpWeights& weights,
         ConstRows z,
         GateActivation activation,
         Executor& executor,
         Activations& a,
         Rows out);

struct RoutedExperts {
  std::unique_ptr<Matrix> router;     // [X, D]
  std::unique_ptr<Matrix> gate_proj;  // [X, F, D]: the first half of gate_up_proj
  std::unique_ptr<Matrix> up_proj;    // [X, F, D]: its second half
  std::unique_ptr<Matrix> down_proj;  // [X, D, F]
};

// Loads the tensor `router` and those of `prefix` ("layers.3.experts."), whose experts have F =
// `width`.
RoutedExperts load_experts(WeightLoader& loader,
                           const std::string& router,
                           const std::string& prefix,
                           std::int64_t width,
                           Compute compute);

// out [T, D] = the experts of `x` that the router chooses for `router_input`, weighed by the
// softmax of their logits times per_expert_scale [X]. Uses router_logits and routing of `a`.
void run_experts(const RoutedExperts& weights,
                 DevicePointer<const float> per_expert_scale,
                 ConstRows router_input,
                 ConstRows x,
                 GateActivation activation,
                 Executor& executor,
                 Activations& a,
                 Rows out);

}  // namespace kakeya
