// Declarations of the reference operations; each is defined in ref_executor.cc (rows) or
// ref_attention.cc (rotary embedding, cache, attention, routing). Meaning: backend/backend.h.
#pragma once

#include <vector>

#include "backend/backend.h"

namespace kakeya::ref {

class RefExecutor : public Executor {
 public:
  void embed(const Matrix& table, float scale, Rows out) override;
  void rms_norm(ConstRows x, DevicePointer<const float> weight, float eps, Rows out) override;
  void matmul(ConstRows x, const Matrix& w, Rows out) override;
  void gated_matmul(ConstRows x,
                    const Matrix& gate,
                    const Matrix& up,
                    GateActivation activation,
                    Rows out) override;
  void gated_multiply(ConstRows gate,
                      DevicePointer<const float> other,
                      std::int64_t other_stride,
                      GateActivation activation,
                      Rows out) override;
  void make_rope_table(ConstVector inverse_frequencies, RopeTable table) override;
  void apply_rope(Rows x, RopeTable table) override;
  void store_kv(ConstRows keys, ConstRows values, std::int64_t layer) override;
  void store_codes(ConstRows keys, ConstRows values, std::int64_t layer) override;
  void attention(ConstRows queries,
                 const AttentionSettings& settings,
                 std::int64_t layer,
                 Rows out) override;
  void gather_logit_rows(ConstRows x, Rows out) override;
  void route(ConstRows logits,
             DevicePointer<const float> per_expert_scale,
             Routing routing) override;
  void experts(ConstRows x,
               const ExpertWeights& weights,
               const Routing& routing,
               GateActivation activation,
               Rows out) override;
  void add(ConstRows a, ConstRows b, float scale, Rows out) override;
  void add_vector(Rows x, ConstVector vector) override;
  void convolve(ConstRows x, const RowConvolution& convolution, Rows out) override;
  void softcap(Rows x, float cap) override;
  void copy_columns(ConstRows x,
                    DevicePointer<float> out,
                    std::int64_t out_width,
                    std::int64_t column) override;

 private:
  void attend(const AttentionInput& input, Rows out);
  void store_rows(ConstRows keys, ConstRows values, const Segment& segment, const KvRows& kv);
  // Key and value of one kv head [E] that are restored for `position`.
  std::vector<float> restore_key(const AttentionInput& input, Position position, std::int64_t head);
  std::vector<float> restore_value(const AttentionInput& input,
                                   Position position,
                                   std::int64_t head);
};

// activation(x), in double: GELU with the tanh approximation, or SiLU.
double activate(GateActivation activation, double x);

}  // namespace kakeya::ref
