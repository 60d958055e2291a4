// Row-wise operations, matrix products and experts on MLX.
#include "backend/mlx/mlx_executor.h"

#include <algorithm>

#include "backend/mlx/mlx_status.h"
#include "tensor/tensor_view.h"

namespace kakeya::mlx {
namespace {

const MlxMatrix& as_mlx(const Matrix& matrix) {
  return static_cast<const MlxMatrix&>(matrix);
}

}  // namespace

MlxExecutor::Guard MlxExecutor::start() {
  Guard guard(space_.mutex());
  ++space_.counters().operations;
  return guard;
}

mx::array MlxExecutor::read(DevicePointer<const float> data,
                            std::int64_t count,
                            std::int64_t width) {
  return space_.read(data.address(), mx::Shape{to_int(count), to_int(width)}, mx::float32);
}

mx::array MlxExecutor::read_as_written(ConstRows x) {
  return space_.read_as_written(x.data.address(), mx::Shape{to_int(x.count), to_int(x.width)},
                                mx::float32);
}

Status MlxExecutor::end(std::span<const ConstRows> read) {
  const Guard guard(space_.mutex());
  return caught([&]() -> Status {
    space_.run_rows(read);
    return {};
  });
}

void MlxExecutor::embed(const Matrix& table, float scale, Rows out) {
  const auto guard = start();
  const MlxMatrix& matrix = as_mlx(table);
  const std::span<const TokenId> ids = batch().ids;
  if (const TensorView* view = matrix.table()) {
    mx::array rows(mx::allocator::malloc(static_cast<std::size_t>(out.count * out.width) * 4),
                   mx::Shape{to_int(out.count), to_int(out.width)}, mx::float32);
    auto* to = rows.data<float>();
    for (std::int64_t t = 0; t < out.count; ++t, to += out.width) {
      copy_to_f32(*view, ids[static_cast<std::size_t>(t)], 0, out.width, to);
    }
    return write(out, mx::multiply(rows, mx::array(scale), s_));
  }
  const mx::array wanted(ids.data(), mx::Shape{to_int(out.count)}, mx::int32);
  write(out, mx::multiply(matrix.rows_of(wanted, s_), mx::array(scale), s_));
}

void MlxExecutor::rms_norm(ConstRows x, DevicePointer<const float> weight, float eps, Rows out) {
  const auto guard = start();
  std::optional<mx::array> factors;
  if (weight) factors = space_.read(weight.address(), mx::Shape{to_int(x.width)}, mx::float32);
  write(out, row_operations_->rms_norm(read_as_written(x), factors, x.width, eps));
}

// A GPU takes another kernel for one row than for more. Of quantised weights two rows and more
// share one, of others eight and more are taken to: that is measured when a model is loaded.
mx::array MlxExecutor::product(const mx::array& rows, const Matrix& w) {
  constexpr int kLeastRows = 8;
  const MlxMatrix& matrix = as_mlx(w);
  const int count = rows.shape(0);
  const int least = matrix.is_quantized() ? 2 : kLeastRows;
  if (count >= least) return matrix.times(rows, s_);
  const mx::array filled =
      mx::pad(rows, {{0, least - count}, {0, 0}}, mx::array(0.0F), "constant", s_);
  return mx::slice(matrix.times(filled, s_), mx::Shape{0, 0},
                   mx::Shape{count, to_int(matrix.rows())}, mx::Shape{1, 1}, s_);
}

void MlxExecutor::matmul(ConstRows x, const Matrix& w, Rows out) {
  const auto guard = start();
  count_bytes(w.bytes());
  write(out, product(read(x), w));
}

void MlxExecutor::gated_matmul(
    ConstRows x, const Matrix& gate, const Matrix& up, GateActivation activation, Rows out) {
  const auto guard = start();
  count_bytes(gate.bytes() + up.bytes());
  const mx::array rows = read(x);
  write(out, row_operations_->gate(activation, product(rows, gate), product(rows, up)));
}

void MlxExecutor::gated_multiply(ConstRows gate,
                                 DevicePointer<const float> other,
                                 std::int64_t other_stride,
                                 GateActivation activation,
                                 Rows out) {
  const auto guard = start();
  // Rows of the others may end before their stride does.
  const std::int64_t reach = (gate.count - 1) * other_stride + gate.width;
  const mx::array others =
      other_stride == gate.width
          ? read(other, gate.count, gate.width)
          : mx::as_strided(read(other, 1, reach), mx::Shape{to_int(gate.count), to_int(gate.width)},
                           mx::Strides{other_stride, 1}, 0, s_);
  write(out, row_operations_->gate(activation, read(gate), others));
}

void MlxExecutor::gather_logit_rows(ConstRows x, Rows out) {
  const auto guard = start();
  const mx::array rows = read(x);
  std::vector<mx::array> wanted;
  for (const Segment& segment : batch().segments) {
    if (segment.logit_rows == 0) continue;
    const int end = to_int(segment.first_row + segment.rows);
    wanted.push_back(mx::slice(rows, mx::Shape{end - to_int(segment.logit_rows), 0},
                               mx::Shape{end, to_int(x.width)}, mx::Shape{1, 1}, s_));
  }
  if (wanted.empty()) return;
  write(out, wanted.size() == 1 ? wanted.front() : mx::concatenate(wanted, 0, s_));
}

void MlxExecutor::route(ConstRows logits,
                        DevicePointer<const float> per_expert_scale,
                        Routing routing) {
  const auto guard = start();
  const mx::array scales =
      space_.read(per_expert_scale.address(), mx::Shape{1, to_int(logits.width)}, mx::float32);
  const Routes routes = row_operations_->route(read(logits), scales, routing.top_k);
  space_.write(routing.experts.address(), routes.experts);
  space_.write(routing.weights.address(), routes.weights);
}

void MlxExecutor::experts(ConstRows x,
                          const ExpertWeights& weights,
                          const Routing& routing,
                          GateActivation activation,
                          Rows out) {
  const auto guard = start();
  count_bytes(
      static_cast<std::uint64_t>(std::min(x.count * routing.top_k, weights.gate->num_matrices())) *
      (weights.gate->bytes() + weights.up->bytes() + weights.down->bytes()));
  const int count = to_int(x.count);
  const int top_k = to_int(routing.top_k);
  const mx::array chosen =
      space_.read(routing.experts.address(), mx::Shape{count, top_k}, mx::uint32);
  const mx::array factors =
      space_.read(routing.weights.address(), mx::Shape{count, top_k}, mx::float32);
  const mx::array rows =
      space_.read(x.data.address(), mx::Shape{count, 1, to_int(x.width)}, mx::float32);
  const mx::array outputs = count > kMostSingleRows
                                ? sorted_experts(rows, weights, chosen, activation)
                                : unsorted_experts(rows, weights, chosen, activation);
  write(out, row_operations_->weighted_sum(outputs, factors, out.width));
}

mx::array MlxExecutor::unsorted_experts(const mx::array& rows,
                                        const ExpertWeights& weights,
                                        const mx::array& chosen,
                                        GateActivation activation) {
  // Which row each product takes: of x, then of what was made for each expert.
  const auto top_k = static_cast<std::uint32_t>(chosen.shape(1));
  std::vector<std::uint32_t> of_rows;
  std::vector<std::uint32_t> of_hidden;
  for (std::uint32_t i = 0; i < chosen.size(); ++i) {
    of_rows.push_back(i / top_k);
    of_hidden.push_back(i);
  }
  const mx::array first(of_rows.data(), chosen.shape(), mx::uint32);
  const mx::array second(of_hidden.data(), chosen.shape(), mx::uint32);
  const mx::array gates = as_mlx(*weights.gate).times_chosen(rows, first, chosen, s_);
  const mx::array ups = as_mlx(*weights.up).times_chosen(rows, first, chosen, s_);
  const mx::array hidden = row_operations_->gate(activation, gates, ups);
  return as_mlx(*weights.down).times_chosen(hidden, second, chosen, s_);
}

// Pairs of a row and an expert in the order of their experts, and back.
mx::array MlxExecutor::sorted_experts(const mx::array& rows,
                                      const ExpertWeights& weights,
                                      const mx::array& chosen,
                                      GateActivation activation) {
  const mx::array pairs = mx::reshape(chosen, mx::Shape{-1}, s_);
  const mx::array order = mx::argsort(pairs, 0, s_);
  const mx::array experts = mx::take(pairs, order, 0, s_);
  const mx::array top_k(static_cast<std::uint32_t>(chosen.shape(1)));
  const mx::array x = mx::take(rows, mx::floor_divide(order, top_k, s_), 0, s_);
  const mx::array gates = as_mlx(*weights.gate).times_sorted(x, experts, s_);
  const mx::array ups = as_mlx(*weights.up).times_sorted(x, experts, s_);
  const mx::array hidden = row_operations_->gate(activation, gates, ups);
  const mx::array outputs = as_mlx(*weights.down).times_sorted(hidden, experts, s_);
  return mx::take(outputs, mx::argsort(order, 0, s_), 0, s_);
}

void MlxExecutor::add(ConstRows a, ConstRows b, float scale, Rows out) {
  const auto guard = start();
  write(out, scale == 1.0F ? mx::add(read(a), read(b), s_)
                           : row_operations_->add(read(a), read(b), scale));
}

void MlxExecutor::add_vector(Rows x, ConstVector vector) {
  const auto guard = start();
  write(x, mx::add(read(x), read(vector.data, 1, vector.size), s_));
}

void MlxExecutor::convolve(ConstRows x, const RowConvolution& convolution, Rows out) {
  const auto guard = start();
  const int width = to_int(x.width);
  const int groups = to_int(x.width / convolution.group);
  const mx::array rows = read(x);
  const mx::array own = read(convolution.own);
  const mx::array base = read(convolution.base.data, convolution.taps, x.width);
  std::vector<mx::array> all;
  for (const Segment& segment : batch().segments) {
    const int first = to_int(segment.first_row);
    const int count = to_int(segment.rows);
    mx::array sum = mx::zeros(mx::Shape{count, width}, mx::float32, s_);
    for (int o = 0; o < std::min(to_int(convolution.taps), count); ++o) {
      const int column = to_int(convolution.column) + o * groups;
      const mx::array coefficients = mx::add(
          mx::slice(base, mx::Shape{o, 0}, mx::Shape{o + 1, width}, mx::Shape{1, 1}, s_),
          mx::repeat(mx::slice(own, mx::Shape{first, column},
                               mx::Shape{first + count, column + groups}, mx::Shape{1, 1}, s_),
                     to_int(convolution.group), 1, s_),
          s_);
      // The rows `o` before, and zeros before the segment.
      const mx::array before =
          mx::pad(mx::slice(rows, mx::Shape{first, 0}, mx::Shape{first + count - o, width},
                            mx::Shape{1, 1}, s_),
                  {{o, 0}, {0, 0}}, mx::array(0.0F), "constant", s_);
      sum = mx::add(sum, mx::multiply(coefficients, before, s_), s_);
    }
    all.push_back(sum);
  }
  write(out, all.size() == 1 ? all.front() : mx::concatenate(all, 0, s_));
}

void MlxExecutor::softcap(Rows x, float cap) {
  const auto guard = start();
  const mx::array limit(cap);
  write(x, mx::multiply(mx::tanh(mx::divide(read(x), limit, s_), s_), limit, s_));
}

void MlxExecutor::copy_columns(ConstRows x,
                               DevicePointer<float> out,
                               std::int64_t out_width,
                               std::int64_t column) {
  const auto guard = start();
  const mx::array old = read(out, x.count, out_width);
  space_.write(out.address(),
               mx::slice_update(old, read(x), mx::Shape{0, to_int(column)},
                                mx::Shape{to_int(x.count), to_int(column + x.width)}, s_));
}

}  // namespace kakeya::mlx
