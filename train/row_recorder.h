// A backend around another one that takes down the features that a projection is given and the keys
// and values that it is to restore, from the passes of a session that restores rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/forwarding_backend.h"

namespace kakeya::train {

// The parameters of what a layer's attention makes of raw keys and values.
struct AttentionPart {
  std::int64_t num_heads = 0;  // H
  float scale = 1.0F;          // of scores
  float rms_norm_eps = 0.0F;
  bool normalise_values = false;
  std::vector<float> k_norm;               // [E]; empty: keys are not normed
  std::vector<float> inverse_frequencies;  // of the pairs that turn
};

// The queries of a layer's attention, and its outputs.
struct RecordedAttention {
  AttentionPart part;
  std::vector<float> queries;  // [T, H * E], normed and turned
  std::vector<float> outputs;  // [T, D], what o_proj gave
};

// The rows of the passes since it was cleared, row after row.
struct RecordedRows {
  std::vector<float> key_features;    // [T, F]
  std::vector<float> value_features;  // [T, F]; the same where both have the same features
  // By layers of the cache, in its order: what k_proj and v_proj gave, [T, width].
  std::vector<std::vector<float>> keys;
  std::vector<std::vector<float>> values;
  // The attention of the layers that store rows of their own; where it is wanted.
  bool wants_attention = false;
  std::vector<RecordedAttention> attention;

  // Keeps the memory.
  void clear();
};

// Computes what the inner backend does. Features are what the matrices `encoder_k.weight` and
// `encoder_v.weight` are multiplied with. Keys and values are those of Executor::see_raw_kv(). What
// o_proj gave is the product behind the attention of such a layer, of what that gave. One executor
// may run at a time; `rows` must outlive it.
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
