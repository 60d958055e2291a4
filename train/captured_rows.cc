#include "captured_rows.h"

#include <fmt/format.h>

#include <cstddef>
#include <numeric>
#include <utility>

#include "base/random.h"
#include "base/status.h"
#include "drafter_weights.h"
#include "model/checkpoint_source.h"

namespace kakeya::train {

std::uint64_t CapturedDocument::bytes() const {
  std::size_t numbers = key_features.size() + value_features.size();
  for (const auto* side : {&keys, &values, &queries, &outputs}) {
    for (const std::vector<float>& rows : *side) numbers += rows.size();
  }
  return numbers * sizeof(float);
}

CapturePlan make_capture_plan(const ModelConfig& target,
                              const ProjectionConfig& projection,
                              std::span<const std::int64_t> layers) {
  CapturePlan plan{.num_features = projection.input_width(),
                   .features_are_shared = projection.features == ProjectionFeatures::kAux,
                   .layers = {}};
  for (const std::int64_t layer : layers) {
    std::int64_t cache_index = 0;
    for (std::int64_t l = 0; l < layer; ++l) cache_index += target.owns_kv(l) ? 1 : 0;
    plan.layers.push_back({.layer = layer,
                           .cache_index = cache_index,
                           .num_kv_heads = target.layer_kv_heads(layer),
                           .head_dim = target.layer_head_dim(layer),
                           .values_are_keys = target.values_are_keys(layer),
                           .window = target.is_sliding(layer) ? target.sliding_window : 0});
  }
  return plan;
}

std::vector<bool> choose_documents(std::span<const std::vector<TokenId>> documents,
                                   std::int64_t most_rows,
                                   std::uint64_t seed) {
  std::vector<std::size_t> order(documents.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  SequenceRng rng(seed ^ 0x726f7773ULL);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  std::vector<bool> chosen(documents.size(), false);
  std::int64_t left = most_rows;
  for (const std::size_t index : order) {
    const std::int64_t rows = std::ssize(documents[index]);
    if (rows > left) continue;
    chosen[index] = true;
    left -= rows;
  }
  return chosen;
}

CapturedDocument capture(const CapturePlan& plan, const RecordedRows& rows) {
  CapturedDocument document{.count = std::ssize(rows.key_features) / plan.num_features,
                            .key_features = rows.key_features,
                            .value_features = {},
                            .keys = {},
                            .values = {},
                            .queries = {},
                            .outputs = {}};
  if (!plan.features_are_shared) document.value_features = rows.value_features;
  for (const CapturePlan::Layer& layer : plan.layers) {
    const auto index = static_cast<std::size_t>(layer.cache_index);
    document.keys.push_back(rows.keys[index]);
    document.values.push_back(layer.values_are_keys ? std::vector<float>() : rows.values[index]);
    if (!plan.has_attention) continue;
    document.queries.push_back(rows.attention[index].queries);
    document.outputs.push_back(rows.attention[index].outputs);
  }
  return document;
}

Result<std::vector<OutputPart>> read_attention_parts(const CapturePlan& plan,
                                                     const std::string& model_dir,
                                                     const ModelConfig& target,
                                                     const RecordedRows& rows) {
  KAKEYA_ASSIGN_OR_RETURN(const auto source, CheckpointSource::open(model_dir, target));
  std::vector<OutputPart> parts;
  for (const CapturePlan::Layer& layer : plan.layers) {
    const auto index = static_cast<std::size_t>(layer.cache_index);
    KAKEYA_ASSIGN_OR_RETURN(
        DrafterTensor o_proj,
        read_f32(*source, fmt::format("layers.{}.self_attn.o_proj.weight", layer.layer)));
    parts.push_back({.attention = rows.attention[index].part, .o_proj = std::move(o_proj.values)});
  }
  return parts;
}

std::int64_t count_rows(std::span<const CapturedDocument> documents) {
  std::int64_t rows = 0;
  for (const CapturedDocument& document : documents) rows += document.count;
  return rows;
}

std::uint64_t count_bytes(std::span<const CapturedDocument> documents) {
  std::uint64_t bytes = 0;
  for (const CapturedDocument& document : documents) bytes += document.bytes();
  return bytes;
}

}  // namespace kakeya::train
