// Engine::embed().
#include "kakeya/embedding.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "runtime/engine_impl.h"

namespace kakeya {
namespace {

// Sums are in double and in the order of positions: chunks make no difference.
class Pool {
 public:
  Pool(Pooling pooling, std::size_t width) : pooling_(pooling), sums_(width) {}

  void add(std::span<const float> row) {
    if (pooling_ == Pooling::kLast) std::fill(sums_.begin(), sums_.end(), 0.0);
    for (std::size_t i = 0; i < row.size(); ++i) sums_[i] += row[i];
    rows_ = pooling_ == Pooling::kLast ? 1 : rows_ + 1;
  }

  std::vector<float> vector(bool normalize) const {
    double squares = 0.0;
    for (const double sum : sums_) squares += sum * sum;
    const double length = normalize ? std::sqrt(squares) : static_cast<double>(rows_);
    std::vector<float> result(sums_.size());
    if (length == 0.0) return result;
    std::transform(sums_.begin(), sums_.end(), result.begin(),
                   [&](double sum) { return static_cast<float>(sum / length); });
    return result;
  }

 private:
  Pooling pooling_;
  std::vector<double> sums_;  // [D]
  std::int64_t rows_ = 0;
};

}  // namespace

Result<std::vector<float>> EngineImpl::embed(std::span<const TokenId> ids,
                                             const EmbeddingOptions& options) {
  if (ids.empty() || std::ssize(ids) > max_context()) {
    return invalid_argument("a text to embed must have 1 to {} tokens for this model but has {}",
                            max_context(), ids.size());
  }
  if (options.pooling > Pooling::kMean) {
    return invalid_argument("EmbeddingOptions::pooling is no way to pool: {}",
                            static_cast<int>(options.pooling));
  }
  const SessionOptions session = {.context = std::ssize(ids),
                                  .max_rows = options_.session.max_rows,
                                  .kv_full = options_.session.kv_full,
                                  .kv_sliding = options_.session.kv_sliding,
                                  .drafting = false};
  KAKEYA_ASSIGN_OR_RETURN(const auto timeline, create_timeline(session, /*logit_rows=*/1));
  KAKEYA_TRY(timeline->check(ids));
  const std::int64_t chunk = timeline->chunk();
  const std::int64_t width = config_.hidden_size;
  KAKEYA_ASSIGN_OR_RETURN(
      const Buffer rows,
      budget_.allocate(MemoryClass::kActivations,
                       static_cast<std::uint64_t>(chunk * width) * sizeof(float)));
  const std::int64_t final_norm = config_.num_hidden_layers;
  Pool pool(options.pooling, static_cast<std::size_t>(width));
  std::int64_t count = 0;
  for (std::int64_t begin = 0; begin < std::ssize(ids); begin += count) {
    count = std::min(workspace_->limited_rows(chunk), std::ssize(ids) - begin);
    KAKEYA_TRY(timeline->forward(
        ids.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
        {.logits = {}, .tap_points = {&final_norm, 1}, .taps = {rows.as<float>(), count, width}}));
    for (std::int64_t i = 0; i < count; ++i) {
      pool.add({rows.as<float>() + i * width, static_cast<std::size_t>(width)});
    }
  }
  std::vector<float> vector = pool.vector(options.normalize);
  const bool finite =
      std::all_of(vector.begin(), vector.end(), [](float x) { return std::isfinite(x); });
  if (!finite) {
    return data_loss("the embedding is not finite: weights or activations overflow in this model");
  }
  return vector;
}

}  // namespace kakeya
