#include "projection_losses.h"

namespace kakeya::train {
namespace {

constexpr double kMeanSquareFloor = 1e-6;
constexpr double kVarianceShare = 0.1;
constexpr double kMagnitudeShare = 0.1;
// Under square roots, so that the gradient of a vector of zeros is 0, not NaN. Far below the
// rounding of any vector that counts.
constexpr double kLeastSquare = 1e-20;

mx::array mean_square(const mx::array& x) {
  return mx::mean(x * x);
}

// [..., E] to [...].
mx::array lengths(const mx::array& x) {
  return mx::sqrt(mx::sum(x * x, -1) + mx::array(kLeastSquare, x.dtype()));
}

mx::array one_minus_cosine(const mx::array& made, const mx::array& wanted) {
  const mx::array cosines = mx::sum(made * wanted, -1) / (lengths(made) * lengths(wanted));
  return mx::array(1.0, made.dtype()) - mx::mean(cosines);
}

mx::array relative_magnitude(const mx::array& made, const mx::array& wanted) {
  const mx::array length = lengths(wanted);
  return mean_square(lengths(made) - length) / mean_square(length);
}

mx::array direction_and_magnitude(const mx::array& made, const mx::array& wanted) {
  return one_minus_cosine(made, wanted) + relative_magnitude(made, wanted);
}

// (1 / 2n) sum over layers, keys and values of a term.
template <typename Term>
mx::array mean_over(std::span<const LayerRows> layers, const Term& term) {
  mx::array sum(0.0, layers.front().keys.dtype());
  for (const LayerRows& layer : layers) {
    sum = sum + term(layer.made_keys, layer.keys) + term(layer.made_values, layer.values);
  }
  return sum / mx::array(2.0 * static_cast<double>(layers.size()), sum.dtype());
}

// Vectors [..., E] of the root mean square 1.
mx::array normed_vectors(const mx::array& x, double epsilon) {
  return x * mx::rsqrt(mx::mean(x * x, -1, true) + mx::array(epsilon, x.dtype()));
}

mx::array normed_values(const LayerAttention& attention, const mx::array& values) {
  return attention.normalise_values ? normed_vectors(values, attention.rms_norm_eps) : values;
}

mx::array normed_keys(const LayerAttention& attention, const mx::array& keys) {
  return normed_vectors(keys, attention.rms_norm_eps) * attention.k_norm;
}

// [T, K, E], each turned by its row's angles, [T, 1, E / 2].
mx::array turned_keys(const LayerAttention& attention, const mx::array& x) {
  const std::vector<mx::array> halves = mx::split(x, 2, -1);
  return mx::concatenate({halves[0] * attention.cos - halves[1] * attention.sin,
                          halves[1] * attention.cos + halves[0] * attention.sin},
                         -1);
}

// [T, D]: what the layer adds to its rows with these keys and values [T, K, E].
mx::array attention_output(const LayerAttention& attention,
                           const mx::array& raw_keys,
                           const mx::array& raw_values) {
  const mx::array keys = turned_keys(attention, normed_keys(attention, raw_keys));
  const mx::array values = normed_values(attention, raw_values);
  const int rows = keys.shape(0);
  const int kv_heads = keys.shape(1);
  const int dim = keys.shape(2);
  const int group = attention.queries.shape(1) / kv_heads;
  const mx::array scale(attention.scale, keys.dtype());
  // By kv head; the queries that share one stand one after the other.
  const mx::array queries = mx::reshape(
      mx::transpose(mx::reshape(attention.queries * scale, {rows, kv_heads, group, dim}),
                    {1, 2, 0, 3}),
      {kv_heads, group * rows, dim});
  const mx::array scores = mx::reshape(mx::matmul(queries, mx::transpose(keys, {1, 2, 0})),
                                       {kv_heads, group, rows, rows});
  const mx::array shares =
      mx::reshape(mx::softmax(scores + attention.mask, -1, true), {kv_heads, group * rows, rows});
  const mx::array taken = mx::reshape(mx::matmul(shares, mx::transpose(values, {1, 0, 2})),
                                      {kv_heads, group, rows, dim});
  return mx::matmul(mx::reshape(mx::transpose(taken, {2, 0, 1, 3}), {rows, kv_heads * group * dim}),
                    mx::transpose(attention.o_proj));
}

mx::array output_error(const LayerRows& layer, const LayerAttention& attention) {
  return mean_square(attention_output(attention, layer.made_keys, layer.made_values) -
                     attention.outputs);
}

mx::array vector_error(const LayerRows& layer, const LayerAttention& attention) {
  const mx::array share(kMagnitudeShare, layer.keys.dtype());
  return one_minus_cosine(normed_keys(attention, layer.made_keys),
                          normed_keys(attention, layer.keys)) +
         one_minus_cosine(normed_values(attention, layer.made_values),
                          normed_values(attention, layer.values)) +
         share * (relative_magnitude(layer.made_keys, layer.keys) +
                  relative_magnitude(layer.made_values, layer.values));
}

// (1 / n) sum over layers of a term.
template <typename Term>
mx::array mean_of(std::span<const LayerRows> layers,
                  std::span<const LayerAttention> attention,
                  const Term& term) {
  mx::array sum(0.0, layers.front().keys.dtype());
  for (std::size_t l = 0; l < layers.size(); ++l) sum = sum + term(layers[l], attention[l]);
  return sum / mx::array(static_cast<double>(layers.size()), sum.dtype());
}

}  // namespace

mx::array mse_loss(std::span<const LayerRows> layers) {
  return mean_over(layers, [](const mx::array& made, const mx::array& wanted) {
    return mean_square(made - wanted);
  });
}

mx::array relmse_loss(std::span<const LayerRows> layers) {
  return mean_over(layers, [](const mx::array& made, const mx::array& wanted) {
    return mean_square(made - wanted) /
           (mean_square(wanted) + mx::array(kMeanSquareFloor, made.dtype()));
  });
}

mx::array cos_mag_loss(std::span<const LayerRows> layers) {
  return mean_over(layers, direction_and_magnitude);
}

mx::array combined_loss(std::span<const LayerRows> layers) {
  return mean_over(layers, [](const mx::array& made, const mx::array& wanted) {
    const mx::array share = mean_square(made - wanted) / mean_square(wanted - mx::mean(wanted));
    return direction_and_magnitude(made, wanted) + mx::array(kVarianceShare, made.dtype()) * share;
  });
}

mx::array attn_distill_loss(std::span<const LayerRows> layers,
                            std::span<const LayerAttention> attention) {
  return mean_of(layers, attention, output_error);
}

mx::array attn_distill_hybrid_loss(std::span<const LayerRows> layers,
                                   std::span<const LayerAttention> attention) {
  return mean_of(layers, attention, [](const LayerRows& layer, const LayerAttention& of) {
    return output_error(layer, of) + vector_error(layer, of);
  });
}

}  // namespace kakeya::train
