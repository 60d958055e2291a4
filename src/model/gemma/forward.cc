// The forward pass of Gemma. x is the residual stream, a.hidden; T the tokens of this pass.
#include <cmath>

#include "model/gemma/gemma.h"

namespace kakeya::gemma {
namespace {

constexpr GateActivation kActivation = GateActivation::kGeluTanh;

}  // namespace

float Gemma::embed_scale() const {
  return std::sqrt(static_cast<float>(config().hidden_size));
}

void Gemma::forward(const Batch& batch,
                    Executor& executor,
                    Activations& activations,
                    const ForwardOutput& output) const {
  Activations a = activations.with_rows(batch.rows());
  TapWriter taps(output.tap_points, output.taps, executor);

  executor.make_rope_table(inverse_frequencies_sliding_, a.rope_sliding);
  executor.make_rope_table(inverse_frequencies_full_, a.rope_full);
  executor.embed(*embed_tokens_, embed_scale(), a.hidden);
  taps.write(kTapEmbedding, a.hidden);
  if (embed_tokens_per_layer_ != nullptr) make_per_layer_inputs(executor, a);

  for (std::int64_t l = 0; l < config().num_hidden_layers; ++l) {
    decoder_layer(l, batch, executor, a);
    taps.write(l, a.hidden);
  }

  write_outputs(norm_, batch, executor, a, taps, output);
}

// a.per_layer_input[t, l] = (norm(Wm x0 * D^-1/2)[l] + sqrt(P) * table[ids[t], l]) / sqrt(2).
// Source: Gemma4TextModel.project_per_layer_inputs.
void Gemma::make_per_layer_inputs(Executor& executor, Activations& a) const {
  const std::int64_t width = config().hidden_size_per_layer_input;  // P
  const float eps = config().rms_norm_eps;
  executor.embed(*embed_tokens_per_layer_, std::sqrt(static_cast<float>(width)), a.per_layer_input);
  executor.matmul(a.hidden, *per_layer_model_projection_, a.per_layer_context);
  // The projection is scaled by D^-1/2 before its norm, which changes only the weight of eps:
  // norm(c * s; eps) = norm(c; eps / s^2).
  const float projected_eps = eps * static_cast<float>(config().hidden_size);
  const Rows context = reshape(a.per_layer_context, width);
  executor.rms_norm(context, per_layer_projection_norm_.data(), projected_eps, context);
  executor.add(a.per_layer_context, a.per_layer_input, 1.0F / std::sqrt(2.0F), a.per_layer_input);
}

void Gemma::decoder_layer(std::int64_t layer,
                          const Batch& batch,
                          Executor& executor,
                          Activations& a) const {
  const LayerWeights& w = layers_[static_cast<std::size_t>(layer)];
  const float eps = config().rms_norm_eps;

  executor.rms_norm(a.hidden, w.input_layernorm.data(), eps, a.normed);
  const RopeTable& rope = w.is_sliding ? a.rope_sliding : a.rope_full;
  attend(w.self_attn, w.shape, rope, batch, executor, a, a.branch);
  executor.rms_norm(a.branch, w.post_attention_layernorm.data(), eps, a.branch);
  executor.add(a.hidden, a.branch, 1.0F, a.hidden);

  feed_forward(w, executor, a);
  executor.rms_norm(a.branch, w.post_feedforward_layernorm.data(), eps, a.branch);
  if (w.per_layer.per_layer_input_gate == nullptr) {
    executor.add(a.hidden, a.branch, w.layer_scalar, a.hidden);
  } else {
    executor.add(a.hidden, a.branch, 1.0F, a.hidden);
    add_per_layer_input(layer, executor, a);
  }
}

// a.branch = the feed-forward of a.hidden, before post_feedforward_layernorm.
void Gemma::feed_forward(const LayerWeights& w, Executor& executor, Activations& a) const {
  executor.rms_norm(a.hidden, w.pre_feedforward_layernorm.data(), config().rms_norm_eps, a.normed);
  if (config().enable_moe_block) return mixture_of_experts(w, executor, a);
  mlp(w.mlp, a.normed, kActivation, executor, a, a.branch);
}

// a.branch = norm_1(the dense MLP of a.normed) + norm_2(experts). The router reads the residual
// stream itself, not the experts' normed input. Norms of the same rows follow each other, so that a
// backend may make them together. Source: Gemma4TextDecoderLayer.forward.
void Gemma::mixture_of_experts(const LayerWeights& w, Executor& executor, Activations& a) const {
  const float eps = config().rms_norm_eps;
  executor.rms_norm(a.hidden, w.moe.router_scale.data(), eps, a.router_input);
  executor.rms_norm(a.hidden, w.moe.pre_feedforward_layernorm_2.data(), eps, a.expert_input);

  mlp(w.mlp, a.normed, kActivation, executor, a, a.branch);
  executor.rms_norm(a.branch, w.moe.post_feedforward_layernorm_1.data(), eps, a.branch);

  run_experts(w.moe.experts, w.moe.per_expert_scale.data(), a.router_input, a.expert_input,
              kActivation, executor, a, a.expert_branch);
  executor.rms_norm(a.expert_branch, w.moe.post_feedforward_layernorm_2.data(), eps,
                    a.expert_branch);
  executor.add(a.branch, a.expert_branch, 1.0F, a.branch);
}

// x = (x + norm(Wp(gelu(Wg x) * ple[layer]))) * layer_scalar.
void Gemma::add_per_layer_input(std::int64_t layer, Executor& executor, Activations& a) const {
  const LayerWeights& w = layers_[static_cast<std::size_t>(layer)];
  const std::int64_t width = config().hidden_size_per_layer_input;  // P
  executor.matmul(a.hidden, *w.per_layer.per_layer_input_gate, a.per_layer_gate);
  executor.gated_multiply(a.per_layer_gate, a.per_layer_input.data + layer * width,
                          a.per_layer_input.width, kActivation, a.per_layer_gate);
  executor.matmul(a.per_layer_gate, *w.per_layer.per_layer_projection, a.branch);
  executor.rms_norm(a.branch, w.per_layer.post_per_layer_input_norm.data(), config().rms_norm_eps,
                    a.branch);
  executor.add(a.hidden, a.branch, w.layer_scalar, a.hidden);
}

}  // namespace kakeya::gemma
