// The operations on CPU: splits each into items for the thread pool and hands them to the leaves of
// one instruction-set unit. cpu_executor.cc has products and row-wise operations,
// cpu_attention.cc attention with its cache rows, cpu_experts.cc routing and experts.
#pragma once

#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_matrix.h"
#include "backend/cpu/kernels.h"
#include "backend/host_rows.h"

namespace kakeya::cpu {

// The activation in the leaves' form.
inline Activation leaf_activation(GateActivation activation) {
  return activation == GateActivation::kSilu ? Activation::kSilu : Activation::kGeluTanh;
}

// Where each part of an executor's scratch is, from the plan alone.
struct ScratchLayout {
  explicit ScratchLayout(const ExecutorPlan& plan);

  std::uint64_t packed_rows = 0;     // [T, K] of the current product, packed
  std::uint64_t expert_rows = 0;     // [T * top_k, D] packed by expert; later their outputs in f32
  std::uint64_t expert_hidden = 0;   // [T * top_k, F] packed
  std::uint64_t wide_hidden = 0;     // [T * top_k, F] f32, before it is rounded to int8
  std::uint64_t sorted_rows = 0;     // [T * top_k] int32: the row of each place, by expert
  std::uint64_t places = 0;          // [T * top_k] int32: the place of row t's rank r
  std::uint64_t first_places = 0;    // [X + 1] int32: first place of each expert
  std::uint64_t active_experts = 0;  // [X] int32: experts that have rows
  std::uint64_t turns = 0;           // [kKeyChunk, 2, turned_pairs] f32: Coded::turns
  Index turned_pairs = 0;
  std::uint64_t bytes = 0;  // of all
};

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(const Kernels& kernels, ThreadPool& pool, const ExecutorPlan& plan, Buffer scratch);

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
  // How many heads and rows of a segment one item attends, and how many such there are.
  struct SegmentItems {
    Index rows = 0;
    Index heads = 0;   // of an item
    Index splits = 0;  // of the heads that share keys
    Index rows_per_item = 0;
    Index blocks = 0;  // of rows
    Index count = 0;
  };
  struct SegmentAttention {
    Attention attention;
    Restored restored;  // `attention` refers to these two
    Coded coded;
    SegmentItems items;
    Index first_item = 0;
  };

  // The codes of a layer in the leaves' form. Makes the table of turns if it is another layer's.
  Coded coded_of(const AttentionInput& input);

  template <typename T>
  T* scratch_at(std::uint64_t offset) const {
    return reinterpret_cast<T*>(scratch_.data() + offset);
  }

  // body(item) for all items: on the pool if all of them together take long enough to pay for
  // waking it, else here.
  template <typename Body>
  void for_items(Index count, double nanoseconds, Body&& body) {
    if (nanoseconds < kWorthThreads) {
      for (Index item = 0; item < count; ++item) body(item);
    } else {
      pool_.parallel_for(count, body);
    }
  }

  // body(first, last) for ranges of rows, each row taking about so long.
  template <typename Body>
  void for_rows(Index rows, double nanoseconds_per_row, Body&& body) {
    const double all = nanoseconds_per_row * static_cast<double>(rows);
    if (all < kWorthThreads) return body(Index{0}, rows);
    const Index ranges = std::min<Index>(rows, 4 * pool_.num_threads());
    pool_.parallel_for(
        ranges, [&](Index range) { body(rows * range / ranges, rows * (range + 1) / ranges); });
  }

  // Time of a product on one thread, to decide about threads.
  double product_nanoseconds(const Product& product, Index panels, Index rows) const;
  // The bytes of one row in the packed form that a product wants.
  Index packed_row_bytes(const Product& product) const;
  // The product's fields that come from its weights.
  static Product product_of(const CpuMatrix& weights);
  // x brought into the packed form of `product`, which then reads it.
  void pack(ConstRows x, Product& product);
  void run_product(const Product& product, Index panels);
  void multiply_gated(ConstRows x, const CpuMatrix& up, Activation activation, Rows out);

  void store_rows(ConstRows keys, ConstRows values, const Segment& segment, const KvRows& kv);
  SegmentItems cut(const Attention& attention, Index rows) const;
  void attend_item(const Attention& attention, const SegmentItems& items, Index item) const;

  // Sorts the rows by expert; returns the number of experts that have rows.
  Index sort_by_expert(const Routing& routing, Index rows, Index num_experts);
  // Rows of x, gathered for each expert, in the packed form of `product`. `routed`: x has a row for
  // each place already.
  void pack_expert_rows(
      ConstRows x, Index active, bool routed, const Product& product, std::byte* to);
  Product expert_product(ConstRows x, const CpuMatrix& weights, Index active);
  ConstRows wide_hidden_rows(ConstRows x,
                             const CpuMatrix& gate,
                             const CpuMatrix& up,
                             Activation activation,
                             Index active,
                             Index top_k);
  void run_expert_products(const Product& shared,
                           const CpuMatrix& weights,
                           const CpuMatrix* up,
                           Index active,
                           bool one_row);

  // A parallel region costs one to two microseconds.
  static constexpr double kWorthThreads = 6000.0;

  const Kernels& kernels_;
  ThreadPool& pool_;
  ScratchLayout layout_;
  Buffer scratch_;
  std::vector<SegmentAttention> segments_;  // of the present attention; as many as the plan says
  std::vector<float> turned_by_;            // the inverse frequencies of the table of turns
};

}  // namespace kakeya::cpu
