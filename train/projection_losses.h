// The losses that projections are trained on by gradient: how far the keys and values that they
// make are from the model's own. The equations are those of the first project, whose names they
// keep.
//
// In all of them n layers count alike, and `mean` is over rows, heads and elements of one layer.
// x is what was made and t what it should be, both raw: before norms and rotation. |x| is the
// length of the vector of one head.
#pragma once

#include <span>

#include "host_arrays.h"

namespace kakeya::train {

// The rows of one layer: T rows of K heads of E elements, [T, K, E] each, of one floating-point
// type.
struct LayerRows {
  mx::array made_keys;
  mx::array keys;
  mx::array made_values;
  mx::array values;
};

// All are pure functions with a scalar as result, differentiable in what was made, for one layer or
// more of one row or more. They throw as MLX does.

// (1 / 2n) sum over layers, keys and values of mean (x - t)^2.
mx::array mse_loss(std::span<const LayerRows> layers);

// mse_loss() with each mean divided by mean t^2 + 1e-6, so that layers count alike however large
// their numbers.
mx::array relmse_loss(std::span<const LayerRows> layers);

// (1 / 2n) sum over layers, keys and values of
//
//   1 - mean cos(x, t)  +  mean (|x| - |t|)^2 / mean |t|^2,
//
// where means are over the vectors of heads. A vector of length 0 has the cosine 0 with any.
mx::array cos_mag_loss(std::span<const LayerRows> layers);

// cos_mag + 0.1 * (1 / 2n) sum over layers, keys and values of mean (x - t)^2 / variance of t, the
// variance of all numbers of t about their mean.
mx::array combined_loss(std::span<const LayerRows> layers);

// The attention of one layer over its T rows, as the model computed it with its own keys and
// values.
struct LayerAttention {
  mx::array queries;  // [T, H, E], normed and turned
  mx::array outputs;  // [T, D], what o_proj gave
  mx::array o_proj;   // [D, H * E]
  mx::array k_norm;   // [E]
  mx::array cos;      // [T, 1, E / 2], of each position's angles
  mx::array sin;
  mx::array mask;  // [T, T], query by key: 0 where it is seen, a large negative number elsewhere
  double scale = 1.0;  // of scores
  double rms_norm_eps = 0.0;
  bool normalise_values = false;
};

// (1 / n) sum over layers of mean (y - o)^2, where o are the outputs and y what comes of the rows
// that were made in their place:
//
//   k = RoPE(k_norm(made keys)),  v = v_norm(made values),  y = o_proj softmax(scale q k^T + mask)
//   v.
//
// Head h reads kv head h / (H / K). Without normalise_values v are the made values. Layers with
// large outputs count most. Both spans are of the same layers.
mx::array attn_distill_loss(std::span<const LayerRows> layers,
                            std::span<const LayerAttention> attention);

// attn_distill_loss() + (1 / n) sum over layers of
//
//   1 - mean cos(k_norm(x), k_norm(t))  +  0.1 mean (|x| - |t|)^2 / mean |t|^2   of keys, and
//   1 - mean cos(v_norm(x), v_norm(t))  +  0.1 mean (|x| - |t|)^2 / mean |t|^2   of values,
//
// lengths being those of raw vectors.
mx::array attn_distill_hybrid_loss(std::span<const LayerRows> layers,
                                   std::span<const LayerAttention> attention);

}  // namespace kakeya::train
