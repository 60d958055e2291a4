#include "convert/kv_calibration.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "backend/forwarding_backend.h"
#include "backend/forwarding_executor.h"
#include "backend/host_rows.h"
#include "base/status.h"
#include "runtime/engine_impl.h"

namespace kakeya {
namespace {

// Sums over the rows of one layer, by KV head and element.
struct LayerSums {
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  bool one_vector = false;
  std::vector<double> key = {};
  std::vector<double> key_squares = {};
  std::vector<double> key_cost = {};
  std::vector<double> value = {};
  std::int64_t rows = 0;
  std::int64_t query_rows = 0;     // each of a query head
  std::vector<bool> rotates = {};  // [E / 2]: each pair
};

class KvObservingExecutor final : public ForwardingExecutor<KvObservingExecutor> {
  using Base = ForwardingExecutor<KvObservingExecutor>;

 public:
  KvObservingExecutor(std::unique_ptr<Executor> inner, std::vector<LayerSums>& sums)
      : Base(std::move(inner)), sums_(sums) {}

  // Rotated rows are what is stored and attended with; the rows before that are what is coded.
  void apply_rope(Rows x, RopeTable table) override {
    rotated_ = x.data.address();
    raw_.assign(rotated_, rotated_ + x.count * x.width);
    Base::apply_rope(x, table);
  }

  void store_kv(ConstRows keys, ConstRows values, std::int64_t layer) override {
    LayerSums& sums = sums_of(layer);
    const float* vectors = sums.one_vector ? host_row(values, 0) : before_rotation(keys);
    for (std::int64_t t = 0; t < values.count; ++t) {
      if (is_exact(t)) continue;
      ++sums.rows;
      for (std::int64_t i = 0; i < values.width; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const double key = vectors[t * values.width + i];
        sums.key[at] += key;
        sums.key_squares[at] += key * key;
        sums.value[at] += host_row(values, t)[i];
      }
    }
    Base::store_kv(keys, values, layer);
  }

  void attention(ConstRows queries,
                 const AttentionSettings& settings,
                 std::int64_t layer,
                 Rows out) override {
    LayerSums& sums = sums_of(layer);
    const std::int64_t heads = queries.width / sums.head_dim;
    const float* raw = before_rotation(queries);
    const float* norm = settings.derivation.k_norm.address();
    see_rotation(settings.derivation.inverse_frequencies, sums);
    for (std::int64_t t = 0; t < queries.count; ++t) {
      if (is_exact(t)) continue;
      for (std::int64_t head = 0; head < heads; ++head) {
        const float* query = raw + t * queries.width + head * sums.head_dim;
        const std::int64_t kv_head = head / (heads / sums.num_kv_heads);
        double* cost = sums.key_cost.data() + kv_head * sums.head_dim;
        for (std::int64_t e = 0; e < sums.head_dim; ++e) {
          const double factor = settings.scale * (sums.one_vector ? norm[e] : 1.0F);
          cost[e] += query[e] * factor * query[e] * factor;
        }
      }
      sums.query_rows += heads / sums.num_kv_heads;
    }
    Base::attention(queries, settings, layer, out);
  }

 private:
  static void see_rotation(ConstVector inverse_frequencies, LayerSums& sums) {
    if (!sums.rotates.empty()) return;
    sums.rotates.resize(static_cast<std::size_t>(sums.head_dim / 2));
    for (std::size_t i = 0; i < static_cast<std::size_t>(inverse_frequencies.size); ++i) {
      sums.rotates[i] = inverse_frequencies.data.address()[i] != 0.0F;
    }
  }
  bool is_exact(std::int64_t row) const {
    return batch().positions[static_cast<std::size_t>(row)] < SessionOptions{}.sink;
  }
  // Rows as they were before they were rotated, if they were.
  const float* before_rotation(ConstRows x) const {
    return x.data.address() == rotated_ ? raw_.data() : x.data.address();
  }
  LayerSums& sums_of(std::int64_t layer) {
    const auto index = static_cast<std::size_t>(layer);
    if (sums_.size() <= index) sums_.resize(index + 1);
    LayerSums& sums = sums_[index];
    if (sums.head_dim > 0) return sums;
    const KvRows& rows = batch().segments.front().layers[index].rows;
    const auto size = static_cast<std::size_t>(rows.num_kv_heads * rows.head_dim);
    sums = {.num_kv_heads = rows.num_kv_heads,
            .head_dim = rows.head_dim,
            .one_vector = rows.keys == nullptr,
            .key = std::vector<double>(size),
            .key_squares = std::vector<double>(size),
            .key_cost = std::vector<double>(size),
            .value = std::vector<double>(size)};
    return sums;
  }

  std::vector<LayerSums>& sums_;
  const float* rotated_ = nullptr;
  std::vector<float> raw_;
};

class KvObservingBackend final : public ForwardingBackend {
 public:
  KvObservingBackend(std::unique_ptr<Backend> inner, std::vector<LayerSums>& sums)
      : ForwardingBackend(std::move(inner)), sums_(sums) {}

  Result<std::unique_ptr<Executor>> create_executor(const ExecutorPlan& plan,
                                                    MemoryBudget& budget) override {
    if (!inner().memory().is_host()) {
      return error(StatusCode::kUnimplemented,
                   "keys and values are observed in host memory only: {} has {}", inner().name(),
                   inner().memory().name());
    }
    KAKEYA_ASSIGN_OR_RETURN(auto executor, inner().create_executor(plan, budget));
    return std::make_unique<KvObservingExecutor>(std::move(executor), sums_);
  }

 private:
  std::vector<LayerSums>& sums_;
};

// Elements i and i + E / 2 turn into one another where the pair rotates, so that both cost what
// they do on average.
std::vector<double> shared_cost(const LayerSums& sums) {
  std::vector<double> cost = sums.key_cost;
  const std::size_t half = sums.rotates.size();
  for (std::size_t head = 0; head < static_cast<std::size_t>(sums.num_kv_heads); ++head) {
    double* of_head = cost.data() + 2 * half * head;
    for (std::size_t i = 0; i < half; ++i) {
      if (!sums.rotates[i]) continue;
      of_head[i] = of_head[i + half] = 0.5 * (of_head[i] + of_head[i + half]);
    }
  }
  return cost;
}

KvLayerStatistics statistics_of(const LayerSums& sums) {
  KvLayerStatistics layer{.num_kv_heads = sums.num_kv_heads, .head_dim = sums.head_dim};
  const auto rows = static_cast<double>(sums.rows);
  const auto queries = static_cast<double>(sums.query_rows);
  const std::vector<double> cost = shared_cost(sums);
  for (std::size_t i = 0; i < sums.key.size(); ++i) {
    const double mean = sums.key[i] / rows;
    layer.key_mean.push_back(static_cast<float>(mean));
    layer.key_variance.push_back(
        static_cast<float>(std::max(0.0, sums.key_squares[i] / rows - mean * mean)));
    layer.key_cost.push_back(static_cast<float>(cost[i] / queries));
    if (!sums.one_vector) layer.value_mean.push_back(static_cast<float>(sums.value[i] / rows));
  }
  return layer;
}

}  // namespace

Result<KvStatistics> measure_kv_statistics(const EngineOptions& engine,
                                           std::span<const std::vector<TokenId>> windows,
                                           const ProgressCallback& progress) {
  std::vector<LayerSums> sums;
  KAKEYA_ASSIGN_OR_RETURN(const auto model,
                          EngineImpl::open(engine, [&](std::unique_ptr<Backend> inner) {
                            return std::make_unique<KvObservingBackend>(std::move(inner), sums);
                          }));
  std::size_t longest = 0;
  std::uint64_t total = 0;
  for (const auto& window : windows) {
    longest = std::max(longest, window.size());
    total += window.size();
  }
  if (static_cast<std::int64_t>(longest) <= SessionOptions{}.sink) {
    return invalid_argument("expected a window of more than {} tokens, got {}",
                            SessionOptions{}.sink, longest);
  }
  const SessionOptions session = {.context = static_cast<std::int64_t>(longest), .drafting = false};
  // Rows that loading ran, to measure the backend, are not of the texts.
  sums.clear();
  std::uint64_t done = 0;
  for (const auto& window : windows) {
    KAKEYA_ASSIGN_OR_RETURN(const auto timeline, model->create_timeline(session, 1));
    KAKEYA_TRY(timeline->push(window));
    KAKEYA_TRY(timeline->run_pending());
    done += window.size();
    if (progress) KAKEYA_TRY(progress(done, total));
  }
  KvStatistics statistics{.weights = model->model_fingerprint(),
                          .made_from = {},
                          .tokens = static_cast<std::int64_t>(total)};
  for (const LayerSums& layer : sums) statistics.layers.push_back(statistics_of(layer));
  return statistics;
}

}  // namespace kakeya
