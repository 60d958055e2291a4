// Products and experts as launches.
#include <algorithm>

#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/device/early_product.h"
#include "backend/cuda/device/run_groups.h"
#include "backend/cuda/device/tensor_products.h"
#include "backend/cuda/launch_shapes.h"
#include "backend/cuda/strip_launch.h"
#include "base/check.h"
#include "base/status.h"

namespace kakeya::cuda {
namespace {

template <typename Tiles>
LaunchShape tensor_shape(std::int64_t outputs, std::int64_t rows) {
  return {ceil_div(outputs, Tiles::kOutputs) * ceil_div(rows, Tiles::kRows), 1,
          device::kTensorWarps * dev::kWarp, Tiles::kSharedWords};
}

// The most outputs that count as few, as those of a router: one for each expert.
constexpr std::int64_t kFewOutputs = 256;
// Blocks that keep a large card busy.
constexpr std::int64_t kManyBlocks = 128;

// The most columns of which early_row_product() has room for all.
constexpr std::int64_t kMostEarlyColumns = 4096;

// True if blocks may copy rows of weights that are few to shared memory before the row is there.
bool can_be_early(const device::Weight& w, const device::ProductRows& rows) {
  const bool has_type = w.type == device::WeightType::kF32 || w.type == device::WeightType::kBf16;
  const bool has_units = w.cols % 8 == 0 && w.cols <= kMostEarlyColumns;
  const bool is_aligned =
      reinterpret_cast<std::uintptr_t>(rows.x) % alignof(device::FourFloats) == 0;
  return has_type && has_units && is_aligned && !w.rounds_rows && w.rows <= kFewOutputs;
}

}  // namespace

device::ProductRows CudaExecutor::product_rows(const float* x,
                                               std::int64_t count,
                                               std::int64_t width,
                                               bool integers) {
  if (!integers) return {x, count, width, nullptr, nullptr, nullptr};
  const RoundedRows rows = {x, count, width};
  if (!(remembers_rounded_ && rounded_ == rows)) {
    rounding_ = (rounding_ + 1) % kRoundings;
    const Rounding& to = roundings_[rounding_];
    const device::RoundParams parameters = {x, count, width, to.codes, to.numbers, to.low_sums};
    launch(Kernel::round_rows, warp_shape(ceil_div(width, device::kGroupColumns), count),
           &parameters);
    rounded_ = rows;
  }
  const Rounding& at = roundings_[rounding_];
  return {x, count, width, at.codes, at.numbers, at.low_sums};
}

void CudaExecutor::launch_product(Kernel kernel,
                                  const LaunchShape& shape,
                                  const void* parameters,
                                  Rows out) {
  const RoundedRows rounded = rounded_;
  launch(kernel, shape, parameters);
  const float* const end = out.data.address() + out.count * out.width;
  const bool overwrites =
      out.data.address() < rounded.x + rounded.count * rounded.width && rounded.x < end;
  if (!overwrites) rounded_ = rounded;
}

void CudaExecutor::matmul(ConstRows x, const Matrix& w, Rows out) {
  count_bytes(w.bytes());
  const CudaMatrix& matrix = as_cuda(w);
  if (matrix.has_integers()) return integer_matmul(x, matrix, out);
  const device::ProductParams parameters = {product_rows(x.data.address(), x.count, x.width, false),
                                            matrix.weight(), out.data.address()};
  if (device::is_for_tensor_cores(matrix.weight())) {
    if (x.count <= device::FewRows::kRows) {
      return launch(Kernel::tensor_product, tensor_shape<device::FewRows>(w.rows(), x.count),
                    &parameters);
    }
    if (x.count <= device::kMostSomeRows) {
      return launch(Kernel::tensor_product_some, tensor_shape<device::SomeRows>(w.rows(), x.count),
                    &parameters);
    }
    return launch(Kernel::tensor_product_rows, tensor_shape<device::ManyRows>(w.rows(), x.count),
                  &parameters);
  }
  if (x.count == 1 && can_be_early(matrix.weight(), parameters.rows)) {
    return launch(Kernel::early_row_product,
                  {ceil_div(w.rows(), device::kProductWarps), 1, device::kProductWarps * dev::kWarp,
                   static_cast<std::uint32_t>(device::early_product_words(matrix.weight()))},
                  &parameters);
  }
  // Few outputs keep a card busy only with a block for each row, unless there are many.
  const LaunchShape tiles = warp_shape(ceil_div(w.rows(), device::kWarpOutputs),
                                       ceil_div(x.count, device::kProductRowTile));
  const bool are_few = w.rows() <= kFewOutputs && tiles.blocks_x * tiles.blocks_y < kManyBlocks;
  if (x.count == 1 || are_few) {
    return launch(Kernel::row_product, warp_shape(w.rows(), x.count), &parameters);
  }
  launch(Kernel::product, tiles, &parameters);
}

void CudaExecutor::integer_matmul(ConstRows x, const CudaMatrix& w, Rows out) {
  device::IntegerProductParams parameters = {};
  parameters.rows = product_rows(x.data.address(), x.count, x.width, true);
  parameters.parts[0] = {w.weight(), out.data.address()};
  parameters.num_parts = 1;
  const StripLaunch strips = plan_product(parameters);
  launch_product(strips.kernel, strips.shape, &parameters, out);
}

void CudaExecutor::gated_matmul(
    ConstRows x, const Matrix& gate, const Matrix& up, GateActivation activation, Rows out) {
  const bool is_for_tensor_cores = device::is_for_tensor_cores(as_cuda(gate).weight());
  const bool integers = as_cuda(gate).has_integers();
  if (is_for_tensor_cores != device::is_for_tensor_cores(as_cuda(up).weight()) ||
      integers != as_cuda(up).has_integers()) {
    return gated_in_parts(x, gate, up, activation, out);
  }
  count_bytes(gate.bytes() + up.bytes());
  device::GatedProductParams parameters = {};
  parameters.rows = product_rows(x.data.address(), x.count, x.width, integers);
  parameters.gate = as_cuda(gate).weight();
  parameters.up = as_cuda(up).weight();
  parameters.out = out.data.address();
  parameters.silu = activation == GateActivation::kSilu;
  if (integers && x.count == 1) {
    device::ExpertHiddenParams alone = {};
    alone.rows = parameters.rows;
    alone.gate = parameters.gate;
    alone.up = parameters.up;
    alone.top_k = 1;
    alone.hidden = parameters.out;
    alone.silu = parameters.silu;
    const auto strips = plan_hidden(alone);
    if (strips && strips->kernel == Kernel::plain_expert_hidden) {
      return launch_product(strips->kernel, strips->shape, &alone, out);
    }
  }
  if (integers) {
    const StripLaunch strips = plan_gated_product(parameters);
    return launch_product(strips.kernel, strips.shape, &parameters, out);
  }
  if (is_for_tensor_cores) {
    const std::int64_t outputs = 2 * gate.rows();
    if (x.count <= device::FewGatedRows::kRows) {
      return launch(Kernel::gated_tensor_product,
                    tensor_shape<device::FewGatedRows>(outputs, x.count), &parameters);
    }
    if (x.count <= device::kMostSomeRows) {
      return launch(Kernel::gated_tensor_product_some,
                    tensor_shape<device::SomeGatedRows>(outputs, x.count), &parameters);
    }
    return launch(Kernel::gated_tensor_product_rows,
                  tensor_shape<device::ManyRows>(outputs, x.count), &parameters);
  }
  launch(x.count == 1 ? Kernel::gated_row_product : Kernel::gated_product,
         warp_shape(gate.rows(), ceil_div(x.count, device::kProductRowTile)), &parameters);
}

// Matrices for different kernels: each by its own, as many rows at a time as
// there is room for in the scratch of attention.
void CudaExecutor::gated_in_parts(
    ConstRows x, const Matrix& gate, const Matrix& up, GateActivation activation, Rows out) {
  const std::int64_t most = num_partials_ / out.width;
  KAKEYA_CHECK(most > 0);
  for (std::int64_t row = 0; row < x.count; row += most) {
    const std::int64_t count = std::min(most, x.count - row);
    const ConstRows in = {x.data + row * x.width, count, x.width};
    const Rows gates = {out.data + row * out.width, count, out.width};
    const Rows others = {DevicePointer<float>(partials_), count, out.width};
    matmul(in, gate, gates);
    matmul(in, up, others);
    gated_multiply(gates, others.data, out.width, activation, gates);
  }
}

}  // namespace kakeya::cuda
