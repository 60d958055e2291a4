// Declarations of the operations on MLX; each is defined in mlx_executor.cc (rows and products) or
// mlx_attention.cc (rotary embedding, cache, attention). Meaning: backend/backend.h.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "backend/backend.h"
#include "backend/mlx/mlx_matrix.h"
#include "backend/mlx/mlx_row_operations.h"
#include "backend/mlx/mlx_space.h"

namespace kakeya::mlx {

class MlxExecutor final : public Executor {
 public:
  MlxExecutor(MlxSpace& space, Buffer scratch)
      : space_(space),
        s_(space.stream()),
        row_operations_(create_row_operations(space.operations(), s_)),
        scratch_(std::move(scratch)) {}

  // Runs the pass, in one evaluation.
  Status end(std::span<const ConstRows> read) override;
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
  void attention(ConstRows queries,
                 const AttentionSettings& settings,
                 std::int64_t layer,
                 Rows out) override;
  void gather_logit_rows(ConstRows x, Rows out) override;
  void route(ConstRows logits,
             DevicePointer<const float> per_expert_scale,
             Routing routing) override;
  // Counts the bytes of as many experts as rows may be routed to.
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
  using Guard = std::unique_lock<std::recursive_mutex>;
  // cos and sin of one tile of positions, [kTile, half] each; pairs that do not rotate have 1 and
  // 0.
  struct Angles {
    mx::array cos;
    mx::array sin;
  };
  struct AngleTiles {
    std::vector<float> frequencies;
    std::map<Position, Angles> tiles;
  };
  // Keys and values of positions, [1, N, K, E] each.
  struct KeysAndValues {
    mx::array keys;
    mx::array values;
  };
  // Keys and values as they are stored, f32 or bf16; where no keys are stored, the arrays that make
  // them.
  struct Seen {
    std::variant<mx::array, DerivedKeys> keys;
    mx::array values;
  };
  // Positions in whole tiles, as attention walks them.
  struct Walk {
    std::vector<Position> tiles;  // the first positions of those with something to see
    // The positions that some query sees: [first, second) twice.
    std::pair<Position, Position> sinks;
    std::pair<Position, Position> rows;
  };

  // Counts an operation; nobody else records meanwhile.
  [[nodiscard]] Guard start();
  mx::array read(ConstRows x) { return read(x.data, x.count, x.width); }
  mx::array read(DevicePointer<const float> data, std::int64_t count, std::int64_t width);
  mx::array read_as_written(ConstRows x);
  void write(Rows out, mx::array value) { space_.write(out.data.address(), std::move(value)); }

  // Rows [T, K] times a weight, in a shape in which a row has the same bits alone and among others.
  mx::array product(const mx::array& rows, const Matrix& w);
  // Applies to rows [T, 1, D] each of the experts [T, K] that they chose: T * K rows.
  mx::array unsorted_experts(const mx::array& rows,
                             const ExpertWeights& weights,
                             const mx::array& chosen,
                             GateActivation activation);
  mx::array sorted_experts(const mx::array& rows,
                           const ExpertWeights& weights,
                           const mx::array& chosen,
                           GateActivation activation);
  mx::array stored(const mx::array& rows, const KvRows& kv);
  void store_rows(const mx::array& rows,
                  const Segment& segment,
                  const KvRows& kv,
                  const DevicePointer<std::byte>* blocks);
  mx::array attend(const AttentionInput& input);
  mx::array swapped(const mx::array& x, int a, int b, int width);
  static mx::array mask(const AttentionInput& input,
                        const Walk& stored,
                        const Walk& restored,
                        int group);
  static Walk walk(const AttentionInput& input);
  static Walk restored_walk(const AttentionInput& input);
  KeysAndValues stored_rows(const AttentionInput& input, const Walk& walk);
  KeysAndValues restored_rows(const AttentionInput& input, const Walk& walk);
  mx::array restored_raw(const AttentionInput& input,
                         const Walk& walk,
                         const DevicePointer<std::byte>* blocks,
                         DevicePointer<const float> decoder);
  Seen seen_rows(const AttentionInput& input, const Walk& stored, const Walk& restored);
  static std::vector<std::int32_t> spans_of(const Walk& stored, const Walk& restored);
  mx::array gathered_rows(const Walk& walk,
                          const KvRows& kv,
                          const DevicePointer<std::byte>* blocks);
  mx::array decoded_rows(const Walk& walk,
                         const KvRows& kv,
                         const DevicePointer<std::byte>* blocks);
  DerivedKeys derivation(const AttentionInput& input, const Walk& walk);
  Angles angles(const ConstVector& frequencies, std::int64_t half, const Walk& walk);

  MlxSpace& space_;
  const mx::Stream s_;
  const std::unique_ptr<RowOperations> row_operations_;
  Buffer scratch_;  // what is charged for MLX's own memory in a pass
  std::map<std::pair<const float*, std::int64_t>, AngleTiles> angles_;
};

}  // namespace kakeya::mlx
