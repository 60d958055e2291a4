#include "projection_moments.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "base/status.h"

namespace kakeya::train {
namespace {

std::vector<std::int64_t> own_layers(const ModelConfig& target) {
  std::vector<std::int64_t> layers;
  for (std::int64_t l = 0; l < target.num_hidden_layers; ++l) {
    if (target.owns_kv(l)) layers.push_back(l);
  }
  return layers;
}

std::vector<std::int64_t> widths_of(const ProjectionConfig& projection,
                                    const std::vector<std::int64_t>& layers) {
  std::vector<std::int64_t> widths;
  for (const std::int64_t l : layers) widths.push_back(projection.layer_width(l));
  return widths;
}

// The widths of key targets, and of value targets behind them that are not keys.
std::vector<std::int64_t> widths_of_both(const ModelConfig& target,
                                         const ProjectionConfig& projection) {
  const std::vector<std::int64_t> layers = own_layers(target);
  std::vector<std::int64_t> widths = widths_of(projection, layers);
  if (projection.features != ProjectionFeatures::kAux) return widths;
  for (const std::int64_t l : layers) {
    if (!target.values_are_keys(l)) widths.push_back(projection.layer_width(l));
  }
  return widths;
}

std::span<const float> rows_behind(const std::vector<float>& rows,
                                   std::int64_t first,
                                   std::int64_t width) {
  return std::span(rows).subspan(static_cast<std::size_t>(first * width));
}

std::vector<float> copy_from(const std::vector<float>& rows,
                             std::int64_t first,
                             std::int64_t width) {
  const auto part = rows_behind(rows, first, width);
  return {part.begin(), part.end()};
}

}  // namespace

ProjectionMoments::ProjectionMoments(const ModelConfig& target, const ProjectionConfig& projection)
    : shared_(projection.features == ProjectionFeatures::kAux),
      feature_width_(projection.input_width()),
      layers_(own_layers(target)),
      widths_(widths_of(projection, layers_)),
      keys_(feature_width_, widths_of_both(target, projection)),
      values_(shared_ ? 0 : feature_width_, shared_ ? std::vector<std::int64_t>() : widths_) {
  std::size_t next = layers_.size();
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const bool key_again = !shared_ || target.values_are_keys(layers_[i]);
    value_targets_.push_back(key_again ? i : next++);
  }
}

Status ProjectionMoments::add(const RecordedRows& rows, std::int64_t first, ThreadPool& pool) {
  const std::int64_t count = std::ssize(rows.key_features) / feature_width_;
  bool whole = rows.keys.size() == layers_.size();
  for (std::size_t i = 0; whole && i < layers_.size(); ++i) {
    whole = std::ssize(rows.keys[i]) == count * widths_[i] &&
            std::ssize(rows.values[i]) == count * widths_[i];
  }
  if (!whole || rows.value_features.size() != rows.key_features.size()) {
    return error(StatusCode::kInternal,
                 "expected features, keys and values of {} rows in {} layers, got others", count,
                 layers_.size());
  }
  if (count <= first) return {};
  std::vector<std::vector<float>> keys;
  std::vector<std::vector<float>> values;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    keys.push_back(copy_from(rows.keys[i], first, widths_[i]));
    if (!shared_ || value_targets_[i] != i) {
      values.push_back(copy_from(rows.values[i], first, widths_[i]));
    }
  }
  if (shared_) {
    std::ranges::move(values, std::back_inserter(keys));
  } else {
    values_.add(rows_behind(rows.value_features, first, feature_width_), values, pool);
  }
  keys_.add(rows_behind(rows.key_features, first, feature_width_), keys, pool);
  return {};
}

Status add_documents(EngineImpl& engine,
                     const Projection& projection,
                     RecordedRows& recorded,
                     std::span<const std::vector<TokenId>> documents,
                     const TextProgress& progress,
                     ThreadPool& pool,
                     ProjectionMoments& moments,
                     const OnDocument& on_document) {
  const std::int64_t total = count_tokens(documents);
  std::int64_t done = 0;
  if (progress) progress(0, total);
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const std::vector<TokenId>& ids = documents[i];
    // Nothing is evicted, so that the passes are the exact model's.
    const auto length = std::ssize(ids);
    const SessionOptions options = {.context = length,
                                    .max_rows = length,
                                    .sink = kSink,
                                    .window = length,
                                    .evicted_full = Evicted::kRestore,
                                    .evicted_sliding = Evicted::kRestore,
                                    .drafting = false};
    KAKEYA_ASSIGN_OR_RETURN(const auto timeline, engine.create_timeline(options, 1, &projection));
    recorded.clear();
    KAKEYA_TRY(timeline->push(ids));
    KAKEYA_TRY(timeline->run_pending());
    KAKEYA_TRY(moments.add(recorded, kSink, pool));
    if (on_document) on_document(i);
    done += length;
    if (progress) progress(done, total);
  }
  return {};
}

}  // namespace kakeya::train
