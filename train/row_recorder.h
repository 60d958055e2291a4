// A backend around another one that takes down the features that a projection is given and the keys
// and values that it is to restore, from the passes of a session that restores rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/forwarding_backend.h"

namespace kakeya::train {

// Of the passes since it was cleared, row after row.
struct RecordedRows {
  std::vector<float> key_features;    // [T, F]
  std::vector<float> value_features;  // [T, F]; the same where both have the same features
  // By layers of the cache, in its order: what k_proj and v_proj gave, [T, width].
  std::vector<std::vector<float>> keys;
  std::vector<std::vector<float>> values;

  // Keeps the memory.
  void clear();
};

// Computes what the inner backend does. Features are what the matrices `encoder_k.weight` and
// `encoder_v.weight` are multiplied with. Keys and values are those that a session blends into
// restored rows (Comparison::restore_blend), which every layer stores before they are normed and
// turned. One executor may run at a time; `rows` must outlive it.
class RecordingBackend final : public ForwardingBackend {
 public:
  RecordingBackend(std::unique_ptr<Backend> inner, RecordedRows& rows)
      : ForwardingBackend(std::move(inner)), rows_(rows) {}

  Result<std::unique_ptr<Matrix>> load_matrix(const TensorView& weight,
                                              Compute compute,
                                              MemoryBudget& budget) override;
  Result<std::unique_ptr<Executor>> create_executor(const ExecutorPlan& plan,
                                                    MemoryBudget& budget) override;

 private:
  friend class RecordingExecutor;

  RecordedRows& rows_;
  const Matrix* key_encoder_ = nullptr;
  const Matrix* value_encoder_ = nullptr;
};

}  // namespace kakeya::train
