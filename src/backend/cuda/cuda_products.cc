// Products and experts as launches.
#include <algorithm>

#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/device/grouped_experts.h"
#include "backend/cuda/device/tensor_products.h"
#include "backend/cuda/launch_shapes.h"
#include "base/check.h"
#include "base/status.h"

namespace kakeya::cuda {
namespace {

// The words of shared memory of products with integers, and the shapes of blocks that share them.
template <int kRows>
int term_words(const device::GroupLayout& layout, int groups) {
  return device::IntegerTerms<kRows>(0, layout, groups).words();
}
LaunchShape integer_shape(std::int64_t blocks_x, std::int64_t blocks_y, int words) {
  return {blocks_x, blocks_y, device::kIntegerWarps * dev::kWarp,
          static_cast<std::uint32_t>(words)};
}
template <int kRows>
LaunchShape product_shape(const CudaMatrix& matrix, std::int64_t rows) {
  const device::GroupLayout layout(matrix.weight());
  const int groups = device::block_groups<kRows, 1>(matrix.cols(), layout, layout);
  return integer_shape(ceil_div(matrix.rows(), device::kIntegerOutputs) * ceil_div(rows, kRows), 1,
                       term_words<kRows>(layout, groups));
}
// The shared words of a gated product: of the gate's weights and of those that it gates.
template <int kRows>
int gated_words(const CudaMatrix& gate, const CudaMatrix& up) {
  const device::GroupLayout first(gate.weight());
  const device::GroupLayout second(up.weight());
  const int groups = device::block_groups<kRows, 2>(gate.cols(), first, second);
  return term_words<kRows>(first, groups) + term_words<kRows>(second, groups);
}
template <int kRows>
LaunchShape gated_shape(const CudaMatrix& gate, const CudaMatrix& up, std::int64_t rows) {
  return integer_shape(ceil_div(gate.rows(), device::kIntegerOutputs) * ceil_div(rows, kRows), 1,
                       gated_words<kRows>(gate, up));
}

template <typename Tiles>
LaunchShape tensor_shape(std::int64_t outputs, std::int64_t rows) {
  return {ceil_div(outputs, Tiles::kOutputs) * ceil_div(rows, Tiles::kRows), 1,
          device::kTensorWarps * dev::kWarp, Tiles::kSharedWords};
}

// The most outputs that count as few, as those of a router: one for each expert.
constexpr std::int64_t kFewOutputs = 256;

}  // namespace

device::ProductRows CudaExecutor::product_rows(const float* x,
                                               std::int64_t count,
                                               std::int64_t width,
                                               bool integers) {
  if (!integers) return {x, count, width, nullptr, nullptr, nullptr};
  const device::RoundParams parameters = {x, count, width, codes_, steps_, code_sums_};
  launch(Kernel::round_rows, warp_shape(width / kIntegerBlock, count), &parameters);
  return {x, count, width, codes_, steps_, code_sums_};
}

void CudaExecutor::matmul(ConstRows x, const Matrix& w, Rows out) {
  count_bytes(w.bytes());
  const CudaMatrix& matrix = as_cuda(w);
  const device::ProductParams parameters = {
      product_rows(x.data.address(), x.count, x.width, matrix.has_integers()), matrix.weight(),
      out.data.address()};
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
  if (matrix.has_integers()) {
    return x.count == 1
               ? launch(Kernel::integer_row_product, product_shape<1>(matrix, 1), &parameters)
               : launch(Kernel::integer_product,
                        product_shape<device::kIntegerRows>(matrix, x.count), &parameters);
  }
  // Few outputs keep a card busy only with a block for each row.
  if (x.count == 1 || w.rows() <= kFewOutputs) {
    return launch(Kernel::row_product, warp_shape(w.rows(), x.count), &parameters);
  }
  launch(Kernel::product,
         warp_shape(ceil_div(w.rows(), device::kWarpOutputs),
                    ceil_div(x.count, device::kProductRowTile)),
         &parameters);
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
  const device::GatedProductParams parameters = {
      product_rows(x.data.address(), x.count, x.width, integers), as_cuda(gate).weight(),
      as_cuda(up).weight(), activation == GateActivation::kSilu, out.data.address()};
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
  if (integers) {
    return x.count == 1
               ? launch(Kernel::gated_integer_row_product,
                        gated_shape<1>(as_cuda(gate), as_cuda(up), 1), &parameters)
               : launch(Kernel::gated_integer_product,
                        gated_shape<device::kIntegerRows>(as_cuda(gate), as_cuda(up), x.count),
                        &parameters);
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

void CudaExecutor::experts(ConstRows x,
                           const ExpertWeights& weights,
                           const Routing& routing,
                           GateActivation activation,
                           Rows out) {
  const CudaMatrix& gate = as_cuda(*weights.gate);
  const CudaMatrix& up = as_cuda(*weights.up);
  const CudaMatrix& down = as_cuda(*weights.down);
  count_bytes(static_cast<std::uint64_t>(std::min(x.count * routing.top_k, gate.num_matrices())) *
              (gate.bytes() + up.bytes() + down.bytes()));
  const bool integers = gate.has_integers();
  if (integers != up.has_integers()) {
    return fail(Error{StatusCode::kUnimplemented,
                      "experts whose gates are integers where what they are for is not"});
  }
  const std::int64_t pairs = x.count * routing.top_k;
  const device::ExpertHiddenParams hidden = {
      product_rows(x.data.address(), x.count, x.width, integers),
      gate.weight(),
      up.weight(),
      activation == GateActivation::kSilu,
      routing.experts.address(),
      routing.top_k,
      expert_groups_,
      hidden_};
  device::ExpertOutputParams outputs = {{},
                                        down.weight(),
                                        routing.experts.address(),
                                        routing.weights.address(),
                                        routing.top_k,
                                        expert_groups_,
                                        expert_ranks_,
                                        out.data.address()};
  const auto hidden_rows = [&] {
    return product_rows(hidden_, pairs, gate.rows(), down.has_integers());
  };
  if (groups_experts(x.count, routing.top_k, plan_.num_experts)) {
    launch_grouped_hidden(hidden, gate, up, pairs);
    outputs.rows = hidden_rows();
    return launch_grouped_outputs(outputs, down, x.count);
  }
  launch_hidden(hidden, gate, up, pairs);
  outputs.rows = hidden_rows();
  launch_outputs(outputs, down, x.count);
}

void CudaExecutor::launch_hidden(const device::ExpertHiddenParams& parameters,
                                 const CudaMatrix& gate,
                                 const CudaMatrix& up,
                                 std::int64_t pairs) {
  if (!gate.has_integers()) {
    return launch(Kernel::expert_hidden, warp_shape(gate.rows(), pairs), &parameters);
  }
  launch(Kernel::integer_expert_hidden,
         integer_shape(ceil_div(gate.rows(), device::kIntegerOutputs), pairs,
                       gated_words<1>(gate, up)),
         &parameters);
}

void CudaExecutor::launch_outputs(const device::ExpertOutputParams& parameters,
                                  const CudaMatrix& down,
                                  std::int64_t rows) {
  if (!down.has_integers()) {
    return launch(
        Kernel::expert_output,
        {ceil_div(down.rows(), device::kExpertOutputs), rows, device::kProductWarps * dev::kWarp,
         static_cast<std::uint32_t>(device::expert_output_words(parameters.top_k))},
        &parameters);
  }
  const int top_k = static_cast<int>(parameters.top_k);
  launch(Kernel::integer_expert_output,
         integer_shape(ceil_div(down.rows(), device::kIntegerOutputs), rows,
                       top_k * device::kIntegerOutputs +
                           device::kIntegerWarps * term_words<1>(device::GroupLayout(down.weight()),
                                                                 device::warp_groups(down.cols()))),
         &parameters);
}

void CudaExecutor::launch_grouped_hidden(const device::ExpertHiddenParams& parameters,
                                         const CudaMatrix& gate,
                                         const CudaMatrix& up,
                                         std::int64_t pairs) {
  const std::int64_t num_experts = gate.num_matrices();
  const std::int64_t tiles = count_expert_tiles(pairs, num_experts);
  const device::GroupExpertsParams grouping = {parameters.experts, pairs, num_experts, tiles,
                                               expert_groups_};
  launch(Kernel::group_experts,
         {1, 1, device::kGroupingThreads, static_cast<std::uint32_t>(num_experts)}, &grouping);
  if (!gate.has_integers()) {
    return launch(Kernel::grouped_expert_hidden, warp_shape(gate.rows(), tiles), &parameters);
  }
  launch(Kernel::grouped_integer_hidden,
         integer_shape(ceil_div(gate.rows(), device::kIntegerOutputs), tiles,
                       gated_words<device::kGroupedRows>(gate, up)),
         &parameters);
}

void CudaExecutor::launch_grouped_outputs(const device::ExpertOutputParams& parameters,
                                          const CudaMatrix& down,
                                          std::int64_t rows) {
  const std::int64_t tiles = count_expert_tiles(rows * parameters.top_k, down.num_matrices());
  if (down.has_integers()) {
    const device::GroupLayout layout(down.weight());
    const int groups = device::block_groups<device::kGroupedRows, 1>(down.cols(), layout, layout);
    launch(Kernel::grouped_integer_output,
           integer_shape(ceil_div(down.rows(), device::kIntegerOutputs), tiles,
                         term_words<device::kGroupedRows>(layout, groups)),
           &parameters);
  } else {
    launch(Kernel::grouped_expert_output,
           warp_shape(ceil_div(down.rows(), device::kWarpOutputs), tiles), &parameters);
  }
  launch(Kernel::weigh_experts, element_shape(down.rows(), rows), &parameters);
}

}  // namespace kakeya::cuda
