// Experts as launches.
#include <algorithm>

#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/device/many_pairs.h"
#include "backend/cuda/launch_shapes.h"
#include "backend/cuda/strip_launch.h"

namespace kakeya::cuda {

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
  device::ExpertHiddenParams hidden = {};
  hidden.rows = product_rows(x.data.address(), x.count, x.width, integers);
  hidden.gate = gate.weight();
  hidden.up = up.weight();
  hidden.experts = routing.experts.address();
  hidden.top_k = routing.top_k;
  hidden.groups = expert_groups_;
  hidden.hidden = hidden_;
  hidden.silu = activation == GateActivation::kSilu;
  device::ExpertOutputParams outputs = {};
  outputs.down = down.weight();
  outputs.experts = routing.experts.address();
  outputs.weights = routing.weights.address();
  outputs.top_k = routing.top_k;
  outputs.groups = expert_groups_;
  outputs.ranks = expert_ranks_;
  outputs.out = out.data.address();
  const auto hidden_rows = [&] {
    return product_rows(hidden_, pairs, gate.rows(), down.has_integers());
  };
  // Several rows may share experts, which are then read once.
  if (x.count > 1) {
    const PairTiles tiles =
        choose_pair_tiles(hidden.gate, hidden.up, outputs.down, pairs, gate.num_matrices());
    launch_grouped_hidden(hidden, gate, pairs, tiles);
    outputs.rows = hidden_rows();
    return launch_grouped_outputs(outputs, down, x.count, tiles);
  }
  const bool are_rounded = launch_hidden(hidden, gate);
  outputs.rows = hidden_rows();
  launch_outputs(outputs, down, are_rounded);
}

// For one row.
bool CudaExecutor::launch_hidden(device::ExpertHiddenParams& parameters, const CudaMatrix& gate) {
  if (!gate.has_integers()) {
    launch(Kernel::expert_hidden, warp_shape(gate.rows(), parameters.top_k), &parameters);
  } else if (const auto split = plan_hidden(parameters)) {
    launch(split->kernel, split->shape, &parameters);
    return split->kernel == Kernel::plain_expert_hidden;
  } else {
    launch_grouped_hidden(
        parameters, gate, parameters.top_k,
        {count_expert_tiles(parameters.top_k, gate.num_matrices()), device::kGroupedRows});
  }
  return false;
}

// For one row.
void CudaExecutor::launch_outputs(device::ExpertOutputParams& parameters,
                                  const CudaMatrix& down,
                                  bool are_rounded) {
  if (!down.has_integers()) {
    return launch(
        Kernel::expert_output,
        {ceil_div(down.rows(), device::kExpertOutputs), 1, device::kProductWarps * dev::kWarp,
         static_cast<std::uint32_t>(device::expert_output_words(parameters.top_k))},
        &parameters);
  }
  const StripLaunch strips = plan_output(parameters, are_rounded);
  launch(strips.kernel, strips.shape, &parameters);
}

void CudaExecutor::launch_grouped_hidden(device::ExpertHiddenParams& parameters,
                                         const CudaMatrix& gate,
                                         std::int64_t pairs,
                                         const PairTiles& tiles) {
  const std::int64_t num_experts = gate.num_matrices();
  const device::GroupExpertsParams grouping = {parameters.experts, pairs,       num_experts,
                                               tiles.count,        tiles.pairs, expert_groups_};
  if (pairs <= device::kGroupingThreads) {
    launch(Kernel::group_experts,
           {1, 1, device::kGroupingThreads, std::uint32_t{2 * device::kGroupingThreads}},
           &grouping);
  } else {
    launch(Kernel::group_many_experts,
           {1, 1, device::many_pairs_warps(num_experts) * dev::kWarp,
            static_cast<std::uint32_t>(device::many_pairs_words(num_experts))},
           &grouping);
  }
  if (!gate.has_integers()) {
    return launch(Kernel::grouped_expert_hidden, warp_shape(gate.rows(), tiles.count), &parameters);
  }
  const StripLaunch strips = plan_grouped_hidden(parameters, tiles);
  launch(strips.kernel, strips.shape, &parameters);
}

void CudaExecutor::launch_grouped_outputs(device::ExpertOutputParams& parameters,
                                          const CudaMatrix& down,
                                          std::int64_t rows,
                                          const PairTiles& tiles) {
  if (down.has_integers()) {
    const StripLaunch strips = plan_grouped_output(parameters, tiles);
    launch(strips.kernel, strips.shape, &parameters);
  } else {
    launch(Kernel::grouped_expert_output,
           warp_shape(ceil_div(down.rows(), device::kWarpOutputs), tiles.count), &parameters);
  }
  launch(Kernel::weigh_experts, element_shape(down.rows(), rows), &parameters);
}

}  // namespace kakeya::cuda
