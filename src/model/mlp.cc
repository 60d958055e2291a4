#include "model/mlp.h"

namespace kakeya {

MlpWeights load_mlp(WeightLoader& loader, const std::string& prefix, bool biases, Compute compute) {
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

void mlp(const MlpWeights& w,
         ConstRows z,
         GateActivation activation,
         Executor& executor,
         Activations& a,
         Rows out) {
  const Rows hidden{a.mlp_hidden.data, z.count, w.gate_proj->rows()};
  if (w.gate_bias.size() == 0) {
    executor.gated_matmul(z, *w.gate_proj, *w.up_proj, activation, hidden);
    executor.matmul(hidden, *w.down_proj, out);
    return;
  }
  const Rows up{a.mlp_up.data, z.count, w.up_proj->rows()};
  executor.matmul(z, *w.gate_proj, hidden);
  executor.add_vector(hidden, w.gate_bias);
  executor.matmul(z, *w.up_proj, up);
  executor.add_vector(up, w.up_bias);
  executor.gated_multiply(hidden, up.data, up.width, activation, hidden);
  executor.matmul(hidden, *w.down_proj, out);
  executor.add_vector(out, w.down_bias);
}

RoutedExperts load_experts(WeightLoader& loader,
                           const std::string& router,
                           const std::string& prefix,
                           std::int64_t width,
                           Compute compute) {
  RoutedExperts w;
  // A near tie between experts must not fall to the rounding of activations, so the router is f32
  // in both compute modes, as in the published implementations.
  w.router = loader.matrix(router, Compute::kF32);
  w.gate_proj =
      loader.expert_rows({prefix + "gate_up_proj", 0, width, prefix + "gate_proj"}, compute);
  w.up_proj =
      loader.expert_rows({prefix + "gate_up_proj", width, width, prefix + "up_proj"}, compute);
  w.down_proj = loader.matrix(prefix + "down_proj", compute);
  return w;
}

void run_experts(const RoutedExperts& w,
                 DevicePointer<const float> per_expert_scale,
                 ConstRows router_input,
                 ConstRows x,
                 GateActivation activation,
                 Executor& executor,
                 Activations& a,
                 Rows out) {
  executor.matmul(router_input, *w.router, a.router_logits);
  executor.route(a.router_logits, per_expert_scale, a.routing);
  executor.experts(x, {.gate = w.gate_proj.get(), .up = w.up_proj.get(), .down = w.down_proj.get()},
                   a.routing, activation, out);
}

}  // namespace kakeya
