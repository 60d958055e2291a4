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
  }
  const std::int64_t layer = shape.cache_index;
  if (any_sequence(batch, layer, [](const KvLayer& l) { return l.restored.blend != 0.0F; })) {
    executor.store_own_kv(keys, raw_values, layer);
  }
  if (shape.normalise_values) {
    executor.rms_norm(reshape(raw_values, shape.head_dim), nullptr, shape.rms_norm_eps,
                      reshape(values, shape.head_dim));
  }
  if (any_sequence(batch, layer, [](const KvLayer& l) { return l.rows.keys != nullptr; })) {
    const Rows key_heads = reshape(keys, shape.head_dim);
    executor.rms_norm(key_heads, weights.k_norm.data(), shape.rms_norm_eps, key_heads);
    executor.apply_rope(keys, rope);
  }
  executor.store_kv(keys, values, layer);
}

AttentionWeights load_attention(WeightLoader& loader,
                                const std::string& prefix,
                                bool owns_kv,
                                bool values_are_keys,
                                Compute compute) {
  AttentionWeights weights;
  weights.q_proj = loader.matrix(prefix + "q_proj.weight", compute);
  weights.q_norm = loader.vector(prefix + "q_norm.weight");
  if (owns_kv) {
    weights.k_proj = loader.matrix(prefix + "k_proj.weight", compute);
    weights.k_norm = loader.vector(prefix + "k_norm.weight");
    if (!values_are_keys) weights.v_proj = loader.matrix(prefix + "v_proj.weight", compute);
  }
  weights.o_proj = loader.matrix(prefix + "o_proj.weight", compute);
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
  const Rows query_heads = reshape(queries, shape.head_dim);
  executor.rms_norm(query_heads, weights.q_norm.data(), shape.rms_norm_eps, query_heads);
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
}

}  // namespace kakeya
