// The operations of which the networks are made, and the shapes that they take. An Executor runs
// those of one forward pass at a time; backend/ref defines what each one means, in plain loops.
//
// Promise kept by every implementation: the bits of an output row depend on that row's inputs
// alone: not on how many rows are computed with it, on the thread count, or on neighbours.
//
// Memory handed to operations is the backend's, row-major and contiguous: what points there is a
// DevicePointer. Operations take checked arguments and never allocate; everything is validated when
// a model is loaded or a session is created. What can still fail is a device, at the end of a pass.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "backend/batch.h"
#include "backend/choose.h"
#include "backend/rows.h"
#include "base/memory_space.h"
#include "kakeya/options.h"
#include "kakeya/status.h"
#include "kakeya/types.h"
#include "kv/visibility.h"

namespace kakeya {

enum class GateActivation : std::uint8_t { kGeluTanh, kSilu };

// X stacked weight matrices [N, K] in whatever layout the backend likes; X is 1 but for experts.
class Matrix {
 public:
  virtual ~Matrix() = default;
  std::int64_t num_matrices() const { return num_matrices_; }  // X
  std::int64_t rows() const { return rows_; }                  // N, outputs
  std::int64_t cols() const { return cols_; }                  // K, inputs
  // Bytes of one of the stacked matrices, as this backend keeps it.
  virtual std::uint64_t bytes() const = 0;
  // All of them as this backend packs them, for Backend::map_matrix(); empty if it does not.
  virtual std::span<const std::byte> packed() const { return {}; }
  // hash_weight() of what load_matrix() was given, if it made that on the way.
  virtual std::optional<std::uint64_t> weight_hash() const { return std::nullopt; }

 protected:
  Matrix(std::int64_t num_matrices, std::int64_t rows, std::int64_t cols)
      : num_matrices_(num_matrices), rows_(rows), cols_(cols) {}

 private:
  std::int64_t num_matrices_;
  std::int64_t rows_;
  std::int64_t cols_;
};

// How keys come from values where k_proj serves both (attention_k_eq_v): the value is the raw key
// divided by its root mean square, so key = RoPE_p(k_norm * value). The angle is the f32 product
// p * inverse_frequencies[i], as in make_rope_table; pairs beyond the given ones do not rotate.
// Keys that are stored, or restored beside values of their own, may have no norm: k_norm is null,
// and a restored key is the raw one, rotated.
struct KeyDerivation {
  DevicePointer<const float> k_norm;  // [E]; null: keys are not normed
  ConstVector inverse_frequencies;
};

// The settings of one layer's attention that all sequences of a pass share.
struct AttentionSettings {
  float scale = 1.0F;  // of the scores
  // kFast: where rows are bf16, queries, keys, values and probabilities may be rounded, to bf16 or
  // to integers that keep more.
  Compute compute = Compute::kF32;
  // The rows of a segment see one another: a query sees the positions behind it, too.
  bool bidirectional = false;
  KeyDerivation derivation;  // where keys are not stored, and for restored rows
  // How restored rows are normed.
  bool normalise_values = false;
  float rms_norm_eps = 0.0F;
};

// The attention of one segment in one layer, as backends compute it.
struct AttentionInput {
  ConstRows queries;            // [T, H * E], rows of positions first_position ...
  Position first_position = 0;  // their own keys and values are stored already
  KvLayer layer;
  // Every query sees p_q < p_k < block_end besides; 0: causal.
  Position block_end = 0;
  AttentionSettings settings;

  SeenKeys seen(Position position) const { return seen_keys(layer, position, block_end); }
};

// The attention of `segment` of `batch`, whose queries [T, H * E] are given, in `layer`. Checks
// that keys which are made of values have a norm.
AttentionInput attention_input(const Batch& batch,
                               const Segment& segment,
                               ConstRows queries,
                               const AttentionSettings& settings,
                               std::int64_t layer);

// Codes the row of `position`: keys [K * E] before rotation and values [K * E], or one vector. For
// backends whose memory is the host's.
void store_coded_row(const CodedRows& coded,
                     Position position,
                     const float* keys,
                     const float* values);

// The three projections of all experts: gate and up [X, F, D], down [X, D, F].
struct ExpertWeights {
  const Matrix* gate = nullptr;
  const Matrix* up = nullptr;
  const Matrix* down = nullptr;
};

// The coefficients of a depthwise convolution over the rows of a segment, of K taps: those that all
// rows have, and what each row adds, the same for `group` neighbouring channels.
struct RowConvolution {
  ConstVector base;         // [K * D], tap after tap
  ConstRows own;            // [T, W], of which columns [column, column + K * D / group) count
  std::int64_t column = 0;  // of tap 0's first group
  std::int64_t taps = 1;    // K
  std::int64_t group = 1;   // channels; divides D
};

// The largest shapes that an executor will meet; its scratch is sized by them once.
struct ExecutorPlan {
  std::int64_t max_rows = 1;          // T of any call
  std::int64_t max_sequences = 1;     // segments of any batch
  std::int64_t max_matmul_width = 0;  // K of any matmul, gated_matmul or expert projection
  std::int64_t max_query_width = 0;   // H * E of any attention
  std::int64_t max_head_dim = 0;      // E
  // The sizes of the attention that reads most: positions, and numbers of their keys or values,
  // positions * K * E; restored ones count twice.
  std::int64_t max_positions = 0;
  std::int64_t max_kv_numbers = 0;
  std::int64_t max_coded_head_dim = 0;  // E of calibrated codes; 0: none are read
  std::int64_t top_k_experts = 0;       // 0: no experts
  std::int64_t num_experts = 0;
  std::int64_t hidden_size = 0;  // D of the experts
  std::int64_t moe_intermediate_size = 0;

  bool operator==(const ExecutorPlan&) const = default;
};

// Names the operations of a pass, so that an executor may know them again: with equal keys they are
// the same ones, but for what the batch says.
struct PassKey {
  const void* network = nullptr;  // stays as long as the executor is used
  int part = 0;                   // of its operations, as the caller counts them
  std::array<ConstRows, 4> rows;  // the memory that they are handed

  bool operator==(const PassKey&) const = default;
};

// Runs operations, one after the other, with scratch memory of its own. One thread at a time.
// Output rows may be the input rows only where an operation says so.
class Executor {
 public:
  virtual ~Executor() = default;

  // Has the operations that follow run on the rows of `batch`, until the next call. The memory that
  // the batch refers to must stay as it is meanwhile. Whoever runs a network calls it, and end()
  // behind it.
  virtual void begin(const Batch& batch) { batch_ = batch; }

  // Behind begin(): runs all operations that the last pass with this key ran, if nothing is
  // different but ids and positions, and returns true; the caller then calls none of them.
  virtual bool repeat(const PassKey& /*key*/) { return false; }

  // The pass is over: all since the last call, of one batch or more. `read`: rows that somebody
  // will read or hand on; of the rest only what was stored in caches stays. A device that works
  // behind the host's back does all of it now, and says here if it failed: nothing of the pass
  // counts then. Where nobody reads anything it may go on behind the host's back; that the device
  // failed is then said by the next call. Errors: kResourceExhausted, kUnavailable, kInternal.
  virtual Status end(std::span<const ConstRows> /*read*/) { return {}; }

  // out[t] = scale * table[ids[t]], of the batch's ids, which are within the table.
  virtual void embed(const Matrix& table, float scale, Rows out) = 0;

  // out = x / sqrt(mean(x^2) + eps) * weight, mean over the row; weight [width], or null for 1.
  // In place allowed. To norm heads, pass [T * H, E].
  virtual void rms_norm(ConstRows x, DevicePointer<const float> weight, float eps, Rows out) = 0;

  // out [T, N] = x [T, K] * w^T, w of one matrix.
  virtual void matmul(ConstRows x, const Matrix& w, Rows out) = 0;

  // out [T, F] = activation(x gate^T) * (x up^T).
  virtual void gated_matmul(
      ConstRows x, const Matrix& gate, const Matrix& up, GateActivation activation, Rows out) = 0;

  // out[t] = activation(gate[t]) * other[t * other_stride ...]. In place (out = gate) allowed.
  virtual void gated_multiply(ConstRows gate,
                              DevicePointer<const float> other,
                              std::int64_t other_stride,
                              GateActivation activation,
                              Rows out) = 0;

  // Fills the table for the batch's positions; the angle is the f32 product position *
  // inverse_frequencies[i], as the published implementation computes it.
  virtual void make_rope_table(ConstVector inverse_frequencies, RopeTable table) = 0;

  // Rotates each head of x [T, H * E] in place, pairing elements i and i + E/2; row t uses row t of
  // the table.
  virtual void apply_rope(Rows x, RopeTable table) = 0;

  // Writes the batch's rows [T, K * E] into the slots of their positions in `layer` of their
  // sequence, coded in its format; only values where it has no keys.
  virtual void store_kv(ConstRows keys, ConstRows values, std::int64_t layer) = 0;
  // Writes the batch's rows, keys before rotation, into CodedRows of sequences that have them; of
  // one vector, that vector. For backends that read codes (Backend::reads_codes()).
  virtual void store_codes(ConstRows keys, ConstRows values, std::int64_t layer);
  // Shows what k_proj and v_proj gave for the rows that store_kv() gets next; does nothing, but for
  // who records them.
  virtual void see_raw_kv(ConstRows /*keys*/, ConstRows /*values*/, std::int64_t /*layer*/) {}

  // out [T, H * E] = softmax(scale * q k^T + mask) v, where each row of the batch sees what `layer`
  // of its sequence says; head h reads kv head h / (H / K).
  virtual void attention(ConstRows queries,
                         const AttentionSettings& settings,
                         std::int64_t layer,
                         Rows out) = 0;

  // Copies the rows of x [T, width] of which the batch wants logits, one after the other.
  virtual void gather_logit_rows(ConstRows x, Rows out) = 0;

  // Per row of logits [T, X]: the top_k largest (ties: lower id), best first; weights are the
  // softmax over those, times per_expert_scale[expert].
  virtual void route(ConstRows logits,
                     DevicePointer<const float> per_expert_scale,
                     Routing routing) = 0;

  // out[t] = sum over ranks r ascending of weights[t, r] *
  //          down_e(activation(gate_e x[t]) * up_e x[t]), e = experts[t, r].
  virtual void experts(ConstRows x,
                       const ExpertWeights& weights,
                       const Routing& routing,
                       GateActivation activation,
                       Rows out) = 0;

  // out = (a + b) * scale. In place allowed.
  virtual void add(ConstRows a, ConstRows b, float scale, Rows out) = 0;

  // x[t] += vector, of weights: the bias of a product.
  virtual void add_vector(Rows x, ConstVector vector) = 0;

  // x = cap * tanh(x / cap).
  virtual void softcap(Rows x, float cap) = 0;

  // Row t [D] of out = sum over taps o = 0 .. K - 1, ascending, of (base[o, d] + own[t, column +
  // o * D / group + d / group]) * x[t - o, d], where row t - o is of the same segment as t.
  virtual void convolve(ConstRows x, const RowConvolution& convolution, Rows out) = 0;

  // Chooses tokens for each of the sequences, or drafts. The defaults do so on the host.
  virtual void choose(std::span<SequenceChoice> choices, HostCopies& copies);
  virtual void choose_drafts(std::span<BlockChoice> choices, HostCopies& copies);
  // Fills `out`, of the same length for each row of logits, with the row's largest but `never`,
  // best first (ties: lower id). Numbers that are NaN are none; where too few are left, {0,
  // kNever}.
  virtual void list_largest(Rows logits,
                            TokenId never,
                            HostCopies& copies,
                            std::span<TokenLogit> out);

  // Copies x [T, width] into columns [column, column + width) of rows that are `out_width` wide.
  virtual void copy_columns(ConstRows x,
                            DevicePointer<float> out,
                            std::int64_t out_width,
                            std::int64_t column) = 0;

  // Bytes of weights and of cached rows that all operations so far had to read: each matrix once an
  // operation, of experts those that rows were routed to.
  std::uint64_t bytes_read() const { return bytes_read_; }

 protected:
  void count_bytes(std::uint64_t bytes) { bytes_read_ += bytes; }
  // The rows of keys and values that some query of `input` sees.
  static std::uint64_t attention_bytes(const AttentionInput& input);
  const Batch& batch() const { return batch_; }

 private:
  Batch batch_;
  std::uint64_t bytes_read_ = 0;
};

}  // namespace kakeya
