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
  }
  void store_own_kv(ConstRows keys, ConstRows values, std::int64_t layer) override {
    RecordedRows& rows = backend_.rows_;
    const auto index = static_cast<std::size_t>(layer);
    if (rows.keys.size() <= index) {
      rows.keys.resize(index + 1);
      rows.values.resize(index + 1);
    }
    append(backend_.memory(), keys, rows.keys[index]);
    append(backend_.memory(), values, rows.values[index]);
    Base::store_own_kv(keys, values, layer);
  }

 private:
  RecordingBackend& backend_;
};

void RecordedRows::clear() {
  key_features.clear();
  value_features.clear();
  for (auto* side : {&keys, &values}) {
    for (std::vector<float>& layer : *side) layer.clear();
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
