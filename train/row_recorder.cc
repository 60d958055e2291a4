#include "row_recorder.h"

#include <span>
#include <utility>

#include "backend/forwarding_executor.h"
#include "base/status.h"

namespace kakeya::train {
namespace {

void append(MemorySpace& memory, ConstRows rows, std::vector<float>& out) {
  const std::size_t before = out.size();
  out.resize(before + static_cast<std::size_t>(rows.count * rows.width));
  download(memory, rows.data, std::span(out).subspan(before));
}

}  // namespace

class RecordingExecutor final : public ForwardingExecutor<RecordingExecutor> {
  using Base = ForwardingExecutor<RecordingExecutor>;

 public:
  RecordingExecutor(std::unique_ptr<Executor> inner, RecordingBackend& backend)
      : Base(std::move(inner)), backend_(backend) {}

  void matmul(ConstRows x, const Matrix& w, Rows out) override {
    if (&w == backend_.key_encoder_) append(backend_.memory(), x, backend_.rows_.key_features);
    if (&w == backend_.value_encoder_) append(backend_.memory(), x, backend_.rows_.value_features);
    Base::matmul(x, w, out);
    if (attended_ != nullptr && x.data == attended_data_) {
      append(backend_.memory(), out, attended_->outputs);
    }
    attended_ = nullptr;
  }
  void see_raw_kv(ConstRows keys, ConstRows values, std::int64_t layer) override {
    RecordedRows& rows = backend_.rows_;
    const auto index = static_cast<std::size_t>(layer);
    if (rows.keys.size() <= index) {
      rows.keys.resize(index + 1);
      rows.values.resize(index + 1);
    }
    append(backend_.memory(), keys, rows.keys[index]);
    append(backend_.memory(), values, rows.values[index]);
    stored_layer_ = layer;
  }
  void attention(ConstRows queries,
                 const AttentionSettings& settings,
                 std::int64_t layer,
                 Rows out) override {
    // A drafter, and a layer that reads another one's rows, has stored none.
    if (backend_.rows_.wants_attention && stored_layer_ == layer) {
      attended_ = &record(queries, settings, layer);
      attended_data_ = out.data;
    }
    stored_layer_ = -1;
    Base::attention(queries, settings, layer, out);
  }

 private:
  RecordedAttention& record(ConstRows queries,
                            const AttentionSettings& settings,
                            std::int64_t layer) {
    std::vector<RecordedAttention>& all = backend_.rows_.attention;
    const auto index = static_cast<std::size_t>(layer);
    if (all.size() <= index) all.resize(index + 1);
    RecordedAttention& attention = all[index];
    append(backend_.memory(), queries, attention.queries);
    const std::int64_t head_dim = batch().segments.front().layers[index].rows.head_dim;
    attention.part = {.num_heads = queries.width / head_dim,
                      .scale = settings.scale,
                      .rms_norm_eps = settings.rms_norm_eps,
                      .normalise_values = settings.normalise_values,
                      .k_norm = {},
                      .inverse_frequencies = {}};
    const ConstVector frequencies = settings.derivation.inverse_frequencies;
    if (settings.derivation.k_norm) {
      append(backend_.memory(), {settings.derivation.k_norm, 1, head_dim}, attention.part.k_norm);
    }
    append(backend_.memory(), {frequencies.data, 1, frequencies.size},
           attention.part.inverse_frequencies);
    return attention;
  }

  RecordingBackend& backend_;
  std::int64_t stored_layer_ = -1;
  RecordedAttention* attended_ = nullptr;  // whose outputs the next product has
  DevicePointer<const float> attended_data_;
};

void RecordedRows::clear() {
  key_features.clear();
  value_features.clear();
  for (auto* side : {&keys, &values}) {
    for (std::vector<float>& layer : *side) layer.clear();
  }
  for (RecordedAttention& layer : attention) {
    layer.queries.clear();
    layer.outputs.clear();
  }
}

Result<std::unique_ptr<Matrix>> RecordingBackend::load_matrix(const TensorView& weight,
                                                              Compute compute,
                                                              MemoryBudget& budget) {
  KAKEYA_ASSIGN_OR_RETURN(auto matrix, inner().load_matrix(weight, compute, budget));
  if (weight.name == "encoder_k.weight") key_encoder_ = matrix.get();
  if (weight.name == "encoder_v.weight") value_encoder_ = matrix.get();
  return matrix;
}

Result<std::unique_ptr<Executor>> RecordingBackend::create_executor(const ExecutorPlan& plan,
                                                                    MemoryBudget& budget) {
  KAKEYA_ASSIGN_OR_RETURN(auto executor, inner().create_executor(plan, budget));
  return std::make_unique<RecordingExecutor>(std::move(executor), *this);
}

}  // namespace kakeya::train
