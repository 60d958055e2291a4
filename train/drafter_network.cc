#include "drafter_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "model/decoder.h"

namespace kakeya::train {
namespace {

constexpr float kUnseen = -1e30F;

mx::array to_array(const DrafterTensor& tensor, mx::Dtype dtype) {
  mx::Shape shape;
  for (const std::int64_t size : tensor.shape) shape.push_back(to_int(size));
  return mx::astype(mx::array(tensor.values.data(), shape, mx::float32), dtype);
}

// x [..., in] times the transpose of w [out, in].
mx::array product(const mx::array& x, const mx::array& w) {
  return mx::matmul(x, mx::transpose(w));
}

// x [..., H, E] turned by angles [..., 1, E / 2].
mx::array turned(const mx::array& x, const mx::array& cos, const mx::array& sin) {
  const std::vector<mx::array> halves = mx::split(x, 2, -1);
  const mx::array& low = halves[0];
  const mx::array& high = halves[1];
  return mx::concatenate({low * cos - high * sin, high * cos + low * sin}, -1);
}

}  // namespace

struct DrafterNetwork::Layer {
  std::int64_t index;
  const mx::array& q_proj;
  const mx::array& k_proj;
  const mx::array& v_proj;
  const mx::array& o_proj;
  const mx::array& q_norm;
  const mx::array& k_norm;
};

DrafterNetwork::DrafterNetwork(const DrafterConfig& config,
                               const BorrowedWeights& borrowed,
                               mx::Dtype dtype)
    : config_(config),
      dtype_(dtype),
      embed_scale_(config.input_embedding_scale.value_or(borrowed.embed_scale)),
      frequencies_(inverse_frequencies(config.layers.rope_full, config.layers.head_dim)),
      embedding_(to_array(borrowed.embedding, dtype)),
      head_(to_array(borrowed.head, dtype)) {
  for (const TensorSpec& spec : expected_tensors(config)) {
    if (spec.presence != TensorPresence::kRedundant) names_.push_back(spec.name);
  }
}

std::vector<mx::array> DrafterNetwork::arrays(const DrafterWeights& weights) const {
  std::vector<mx::array> arrays;
  for (const DrafterTensor& tensor : weights) arrays.push_back(to_array(tensor, dtype_));
  return arrays;
}

const mx::array& DrafterNetwork::weight(const std::vector<mx::array>& weights,
                                        const std::string& name) const {
  const auto found = std::ranges::find(names_, name);
  return weights[static_cast<std::size_t>(found - names_.begin())];
}

mx::array DrafterNetwork::norm(const mx::array& x, const mx::array& weight) const {
  const mx::array mean = mx::mean(x * x, -1, true);
  return x * mx::rsqrt(mean + mx::array(config_.layers.rms_norm_eps, dtype_)) * weight;
}

DrafterNetwork::Angles DrafterNetwork::angles(const std::vector<std::int32_t>& positions,
                                              const mx::Shape& shape) const {
  std::vector<double> cos;
  std::vector<double> sin;
  for (const std::int32_t position : positions) {
    for (const float frequency : frequencies_) {
      const auto angle = static_cast<double>(static_cast<float>(position) * frequency);
      cos.push_back(std::cos(angle));
      sin.push_back(std::sin(angle));
    }
  }
  mx::Shape whole = shape;
  whole.push_back(1);
  whole.push_back(to_int(std::ssize(frequencies_)));
  return {mx::array(cos.data(), whole, dtype_), mx::array(sin.data(), whole, dtype_)};
}

bool DrafterNetwork::is_causal(std::int64_t layer) const {
  return config_.is_causal.value_or(config_.layers.is_sliding(layer));
}

mx::array DrafterNetwork::mask(std::int64_t layer,
                               const DocumentBlocks& blocks,
                               int context) const {
  const std::int64_t window = config_.layers.is_sliding(layer) ? config_.layers.sliding_window : 0;
  const int rows = to_int(config_.block_size);
  std::vector<float> mask;
  mask.reserve(blocks.anchors.size() * static_cast<std::size_t>(rows * (context + rows)));
  for (const std::int32_t anchor : blocks.anchors) {
    for (int row = 0; row < rows; ++row) {
      const std::int64_t first = window == 0 ? 0 : anchor + row - window + 1;
      for (int key = 0; key < context; ++key) {
        mask.push_back(key < anchor && key >= first ? 0.0F : kUnseen);
      }
      for (int key = 0; key < rows; ++key) {
        const bool seen = anchor + key >= first && (key <= row || !is_causal(layer));
        mask.push_back(seen ? 0.0F : kUnseen);
      }
    }
  }
  return mx::astype(
      mx::array(mask.data(),
                mx::Shape{1, to_int(std::ssize(blocks.anchors)), rows, 1, context + rows},
                mx::float32),
      dtype_);
}

mx::array DrafterNetwork::features(const std::vector<mx::array>& weights,
                                   const mx::array& taps) const {
  return norm(product(taps, weight(weights, "fc.weight")), weight(weights, "hidden_norm.weight"));
}

mx::array DrafterNetwork::embed(const DocumentBlocks& blocks, int count) const {
  const int rows = to_int(config_.block_size);
  std::vector<TokenId> ids = blocks.block_ids;
  for (int n = 0; n < count && blocks.block_ids.empty(); ++n) {
    ids.push_back(blocks.first_ids[static_cast<std::size_t>(n)]);
    ids.insert(ids.end(), static_cast<std::size_t>(rows - 1), config_.mask_token_id);
  }
  const mx::array indices(ids.data(), mx::Shape{count, rows}, mx::int32);
  return mx::take(embedding_, indices, 0) * mx::array(embed_scale_, dtype_);
}

DrafterNetwork::Places DrafterNetwork::places(const DocumentBlocks& blocks, int context) const {
  const int rows = to_int(config_.block_size);
  std::vector<std::int32_t> of_rows;
  for (const std::int32_t anchor : blocks.anchors) {
    for (int row = 0; row < rows; ++row) of_rows.push_back(anchor + row);
  }
  std::vector<std::int32_t> of_context(static_cast<std::size_t>(context));
  std::iota(of_context.begin(), of_context.end(), 0);
  return {blocks, angles(of_rows, {to_int(std::ssize(blocks.anchors)), rows}),
          angles(of_context, {context})};
}

mx::array DrafterNetwork::heads(const mx::array& x, const mx::array& projection) const {
  const int dim = to_int(config_.layers.head_dim);
  mx::Shape shape = x.shape();
  shape.back() = projection.shape(0) / dim;
  shape.push_back(dim);
  return mx::reshape(product(x, projection), shape);
}

mx::array DrafterNetwork::turned_heads(const mx::array& x,
                                       const mx::array& projection,
                                       const mx::array& head_norm,
                                       const Angles& angles) const {
  return turned(norm(heads(x, projection), head_norm), angles.cos, angles.sin);
}

// Scores of the context, which all blocks share, stand beside those of each block itself.
mx::array DrafterNetwork::attended(const mx::array& queries,
                                   const std::vector<mx::array>& keys,
                                   const std::vector<mx::array>& values,
                                   const mx::array& mask) const {
  const int kv_heads = queries.shape(0);
  const int count = queries.shape(1);
  const int rows = queries.shape(2);
  const int dim = queries.shape(3);
  const int context = keys[0].shape(0);
  const mx::array of_context = mx::matmul(mx::reshape(queries, {kv_heads, count * rows, dim}),
                                          mx::transpose(keys[0], {1, 2, 0}));
  const mx::array of_block = mx::matmul(queries, mx::transpose(keys[1], {2, 0, 3, 1}));
  const mx::array scores =
      mx::concatenate({mx::reshape(of_context, {kv_heads, count, rows, context}), of_block}, -1);
  // Rows of the heads that share keys see the same.
  const mx::Shape by_row{kv_heads, count, to_int(config_.block_size), -1, scores.shape(3)};
  const mx::array shares =
      mx::reshape(mx::softmax(mx::reshape(scores, by_row) + mask, -1, true), scores.shape());
  const std::vector<mx::array> parts = mx::split(shares, mx::Shape{context}, -1);
  const mx::array from_context =
      mx::matmul(mx::reshape(parts[0], {kv_heads, count * rows, context}),
                 mx::transpose(values[0], {1, 0, 2}));
  return mx::reshape(from_context, queries.shape()) +
         mx::matmul(parts[1], mx::transpose(values[1], {2, 0, 1, 3}));
}

mx::array DrafterNetwork::attention(const Layer& layer,
                                    const mx::array& normed,
                                    const mx::array& features,
                                    const Places& places) const {
  const ModelConfig& sizes = config_.layers;
  const int count = normed.shape(0);
  const int rows = normed.shape(1);
  const int dim = to_int(sizes.head_dim);
  const int kv_heads = layer.k_proj.shape(0) / dim;
  const int group = layer.q_proj.shape(0) / dim / kv_heads;
  const std::vector<mx::array> keys = {
      turned_heads(features, layer.k_proj, layer.k_norm, places.of_context),
      turned_heads(normed, layer.k_proj, layer.k_norm, places.of_rows)};
  const std::vector<mx::array> values = {heads(features, layer.v_proj),
                                         heads(normed, layer.v_proj)};
  const mx::array scale(1.0F / std::sqrt(static_cast<float>(dim)), dtype_);
  const mx::array queries =
      turned_heads(normed, layer.q_proj, layer.q_norm, places.of_rows) * scale;
  const mx::array by_key_head =
      mx::transpose(mx::reshape(queries, {count, rows, kv_heads, group, dim}), {2, 0, 1, 3, 4});
  const mx::array taken =
      attended(mx::reshape(by_key_head, {kv_heads, count, rows * group, dim}), keys, values,
               mask(layer.index, places.blocks, features.shape(0)));
  const mx::array by_row =
      mx::transpose(mx::reshape(taken, {kv_heads, count, rows, group, dim}), {1, 2, 0, 3, 4});
  return product(mx::reshape(by_row, {count, rows, kv_heads * group * dim}), layer.o_proj);
}

mx::array DrafterNetwork::hidden(const std::vector<mx::array>& weights,
                                 const DocumentBlocks& blocks) const {
  const int width = to_int(std::ssize(config_.target_layer_ids) * config_.layers.hidden_size);
  const mx::array taps =
      mx::astype(mx::array(blocks.taps.data(),
                           mx::Shape{to_int(std::ssize(blocks.taps)) / width, width}, mx::float32),
                 dtype_);
  const mx::array context = features(weights, taps);
  const Places at = places(blocks, context.shape(0));
  mx::array x = embed(blocks, to_int(std::ssize(blocks.anchors)));
  for (std::int64_t l = 0; l < config_.layers.num_hidden_layers; ++l) {
    const auto of = [&](const char* name) -> const mx::array& {
      return weight(weights, fmt::format("layers.{}.{}.weight", l, name));
    };
    const Layer layer{.index = l,
                      .q_proj = of("self_attn.q_proj"),
                      .k_proj = of("self_attn.k_proj"),
                      .v_proj = of("self_attn.v_proj"),
                      .o_proj = of("self_attn.o_proj"),
                      .q_norm = of("self_attn.q_norm"),
                      .k_norm = of("self_attn.k_norm")};
    x = x + attention(layer, norm(x, of("input_layernorm")), context, at);
    const mx::array normed = norm(x, of("post_attention_layernorm"));
    const mx::array gate = product(normed, of("mlp.gate_proj"));
    x = x +
        product(gate * mx::sigmoid(gate) * product(normed, of("mlp.up_proj")), of("mlp.down_proj"));
  }
  return norm(x, weight(weights, "norm.weight") * mx::array(config_.output_multiplier, dtype_));
}

mx::array DrafterNetwork::logits(const mx::array& hidden) const {
  const mx::array logits = product(hidden, head_);
  const float cap = config_.layers.final_logit_softcapping;
  if (cap <= 0.0F) return logits;
  const mx::array capped(cap, dtype_);
  return mx::tanh(logits / capped) * capped;
}

}  // namespace kakeya::train
