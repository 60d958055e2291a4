#include "captured_arrays.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kakeya::train {
namespace {

constexpr float kUnseenKey = -1e30F;

// [T - first, W] of rows [T, W].
mx::array rows_array(const std::vector<float>& rows, std::int64_t first, std::int64_t width) {
  const std::int64_t count = std::ssize(rows) / width - first;
  return mx::array(rows.data() + first * width, mx::Shape{to_int(count), to_int(width)},
                   mx::float32);
}

mx::array times_transposed(const mx::array& x, const mx::array& w) {
  return mx::matmul(x, mx::transpose(w));
}

mx::array vector_array(const std::vector<float>& values) {
  return mx::array(values.data(), mx::Shape{to_int(std::ssize(values))}, mx::float32);
}

// [T, 1, E / 2] each: cos and sin of what RopeTable has, and 1 and 0 for pairs that do not turn.
std::pair<mx::array, mx::array> angle_arrays(std::int64_t rows,
                                             std::int64_t half,
                                             const std::vector<float>& frequencies) {
  std::vector<float> cos(static_cast<std::size_t>(rows * half), 1.0F);
  std::vector<float> sin(cos.size(), 0.0F);
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      const auto angle = static_cast<double>(static_cast<float>(t) * frequencies[i]);
      const std::size_t at = static_cast<std::size_t>(t * half) + i;
      cos[at] = static_cast<float>(std::cos(angle));
      sin[at] = static_cast<float>(std::sin(angle));
    }
  }
  const mx::Shape shape{to_int(rows), 1, to_int(half)};
  return {mx::array(cos.data(), shape, mx::float32), mx::array(sin.data(), shape, mx::float32)};
}

// [T, T]: query by key.
mx::array mask_array(std::int64_t rows, std::int64_t window) {
  std::vector<float> mask(static_cast<std::size_t>(rows * rows), kUnseenKey);
  for (std::int64_t query = 0; query < rows; ++query) {
    const std::int64_t first = window == 0 ? 0 : std::max<std::int64_t>(0, query - window + 1);
    for (std::int64_t key = first; key <= query; ++key) {
      mask[static_cast<std::size_t>(query * rows + key)] = 0.0F;
    }
  }
  return mx::array(mask.data(), mx::Shape{to_int(rows), to_int(rows)}, mx::float32);
}

}  // namespace

std::vector<LayerRows> make_layer_rows(const CapturePlan& plan,
                                       const CapturedDocument& document,
                                       const std::vector<mx::array>& matrices,
                                       std::int64_t first,
                                       FirstRows first_rows) {
  const bool keeps = first_rows == FirstRows::kAsTheyAre && first > 0;
  const mx::array features = rows_array(document.key_features, first, plan.num_features);
  const mx::array key_codes = times_transposed(features, matrices[0]);
  const mx::array value_codes = times_transposed(
      plan.features_are_shared ? features
                               : rows_array(document.value_features, first, plan.num_features),
      matrices[1]);
  std::vector<LayerRows> layers;
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    const CapturePlan::Layer& layer = plan.layers[i];
    const auto heads = [&](const mx::array& rows) {
      return mx::reshape(rows, {-1, to_int(layer.num_kv_heads), to_int(layer.head_dim)});
    };
    const auto wanted = [&](const std::vector<float>& rows) {
      return heads(rows_array(rows, keeps ? 0 : first, layer.width()));
    };
    const auto made = [&](const mx::array& codes, const mx::array& decoder, const mx::array& of) {
      const mx::array rows = heads(times_transposed(codes, decoder));
      if (!keeps) return rows;
      return mx::concatenate({mx::split(of, mx::Shape{to_int(first)}, 0)[0], rows}, 0);
    };
    const mx::array keys = wanted(document.keys[i]);
    const mx::array values = layer.values_are_keys ? keys : wanted(document.values[i]);
    layers.push_back({.made_keys = made(key_codes, matrices[2 + 2 * i], keys),
                      .keys = keys,
                      .made_values = made(value_codes, matrices[3 + 2 * i], values),
                      .values = values});
  }
  return layers;
}

std::vector<LayerAttention> make_layer_attention(const CapturePlan& plan,
                                                 const CapturedDocument& document,
                                                 std::span<const OutputPart> parts) {
  std::vector<LayerAttention> layers;
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    const CapturePlan::Layer& layer = plan.layers[i];
    const AttentionPart& part = parts[i].attention;
    const std::int64_t width = part.num_heads * layer.head_dim;
    const std::int64_t hidden_size = std::ssize(parts[i].o_proj) / width;
    const auto [cos, sin] =
        angle_arrays(document.count, layer.head_dim / 2, part.inverse_frequencies);
    layers.push_back({.queries = mx::reshape(rows_array(document.queries[i], 0, width),
                                             {-1, to_int(part.num_heads), to_int(layer.head_dim)}),
                      .outputs = rows_array(document.outputs[i], 0, hidden_size),
                      .o_proj = rows_array(parts[i].o_proj, 0, width),
                      .k_norm = vector_array(part.k_norm),
                      .cos = cos,
                      .sin = sin,
                      .mask = mask_array(document.count, layer.window),
                      .scale = part.scale,
                      .rms_norm_eps = part.rms_norm_eps,
                      .normalise_values = part.normalise_values});
  }
  return layers;
}

}  // namespace kakeya::train
