#include "model/attention.h"

#include <algorithm>

namespace kakeya {
namespace {

template <typename F>
bool any_sequence(const Batch& batch, std::int64_t layer, F&& f) {
  return std::any_of(batch.segments.begin(), batch.segments.end(), [&](const Segment& segment) {
    return f(segment.layers[static_cast<std::size_t>(layer)]);
  });
}

void add_bias(const WeightVector& bias, Rows x, Executor& executor) {
  if (bias.size() > 0) executor.add_vector(x, bias);
}

void norm_heads(const WeightVector& norm, const AttentionShape& shape, Rows x, Executor& executor) {
  if (norm.size() == 0) return;
  const Rows heads = reshape(x, shape.head_dim);
  executor.rms_norm(heads, norm.data(), shape.rms_norm_eps, heads);
}

}  // namespace

void store_keys_and_values(const AttentionWeights& weights,
                           const AttentionShape& shape,
                           const RopeTable& rope,
                           ConstRows input,
                           const Batch& batch,
                           Executor& executor,
                           Activations& a) {
  const std::int64_t rows = input.count;
  const std::int64_t width = shape.num_kv_heads * shape.head_dim;
  const Rows keys{a.keys.data, rows, width};
  const Rows values{a.values.data, rows, width};
  executor.matmul(input, *weights.k_proj, keys);
  // Values come from the raw projection, before the keys' norm and rotation.
  ConstRows raw_values = keys;
  if (weights.v_proj != nullptr) {
    executor.matmul(input, *weights.v_proj, values);
    raw_values = values;
    add_bias(weights.v_bias, values, executor);
  }
  add_bias(weights.k_bias, keys, executor);
  const std::int64_t layer = shape.cache_index;
  executor.see_raw_kv(keys, raw_values, layer);
  if (shape.normalise_values) {
    executor.rms_norm(reshape(raw_values, shape.head_dim), nullptr, shape.rms_norm_eps,
                      reshape(values, shape.head_dim));
  }
  const bool is_coded = any_sequence(batch, layer, [](const KvLayer& l) { return l.is_coded; });
  if (any_sequence(batch, layer, [](const KvLayer& l) { return l.rows.keys != nullptr; })) {
    norm_heads(weights.k_norm, shape, keys, executor);
    if (is_coded) executor.store_codes(keys, values, layer);
    executor.apply_rope(keys, rope);
  } else if (is_coded) {
    executor.store_codes(values, values, layer);
  }
  executor.store_kv(keys, values, layer);
}

AttentionWeights load_attention(WeightLoader& loader,
                                const std::string& prefix,
                                const AttentionTensors& tensors,
                                Compute compute) {
  const auto vector = [&](const char* name, bool is_there) {
    return is_there ? loader.vector(prefix + name) : WeightVector();
  };
  AttentionWeights weights;
  weights.q_proj = loader.matrix(prefix + "q_proj.weight", compute);
  weights.q_bias = vector("q_proj.bias", tensors.qkv_bias);
  weights.q_norm = vector("q_norm.weight", tensors.head_norms);
  if (tensors.owns_kv) {
    weights.k_proj = loader.matrix(prefix + "k_proj.weight", compute);
    weights.k_bias = vector("k_proj.bias", tensors.qkv_bias);
    weights.k_norm = vector("k_norm.weight", tensors.head_norms);
    if (!tensors.values_are_keys) {
      weights.v_proj = loader.matrix(prefix + "v_proj.weight", compute);
      weights.v_bias = vector("v_proj.bias", tensors.qkv_bias);
    }
  }
  weights.o_proj = loader.matrix(prefix + "o_proj.weight", compute);
  weights.o_bias = vector("o_proj.bias", tensors.o_bias);
  return weights;
}

void attend(const AttentionWeights& weights,
            const AttentionShape& shape,
            const RopeTable& rope,
            const Batch& batch,
            Executor& executor,
            Activations& a,
            Rows out) {
  const std::int64_t rows = a.normed.count;
  const std::int64_t width = shape.num_heads * shape.head_dim;
  const Rows queries{a.queries.data, rows, width};
  // Products of the same rows follow each other, so that a backend may make them together.
  executor.matmul(a.normed, *weights.q_proj, queries);
  if (weights.k_proj != nullptr) {
    store_keys_and_values(weights, shape, rope, a.normed, batch, executor, a);
  }
  add_bias(weights.q_bias, queries, executor);
  norm_heads(weights.q_norm, shape, queries, executor);
  executor.apply_rope(queries, rope);
  const Rows attended{a.attended.data, rows, width};
  executor.attention(queries,
                     {.scale = shape.scale,
                      .compute = shape.compute,
                      .bidirectional = shape.bidirectional,
                      .derivation = {.k_norm = weights.k_norm.data(),
                                     .inverse_frequencies = shape.inverse_frequencies},
                      .normalise_values = shape.normalise_values,
                      .rms_norm_eps = shape.rms_norm_eps},
                     shape.cache_index, attended);
  executor.matmul(attended, *weights.o_proj, out);
  add_bias(weights.o_bias, out, executor);
}

}  // namespace kakeya
