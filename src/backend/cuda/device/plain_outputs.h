// Outputs of the experts of one row, and a product of another row beside them: as a launch of its
// own that product delays the experts, whose hidden columns are made meanwhile, or ends behind
// them.
#pragma once

#include "backend/cuda/device/plain_products.h"

namespace kakeya::cuda::device {

// The strips of the product that a block of so many warps takes: as few blocks as leave four warps
// to each strip.
KAKEYA_DEVICE int strips_beside(int warps) {
  return warps < 2 * kSplitWarps ? 1 : warps / kSplitWarps;
}

// Grid: strips of experts, which are begun first, for they have more to read; then those of the
// product.
KAKEYA_DEVICE void plain_outputs(const PlainOutputsParams& p) {
  const auto block = static_cast<int>(dev::block_x());
  const auto of_experts = static_cast<int>(num_strips(p.experts.down.rows));
  if (block < of_experts) return plain_expert_output(p.experts);
  const Weight& weight = p.product.weight;
  const PlainProduct product = {strips_beside(dev::threads() / dev::kWarp)};
  const int last = static_cast<int>(num_strips(weight.rows)) - 1;
  const int strip = (block - of_experts) * product.strips + product.strip();
  // Behind the last strip stands that one again, of which nothing is stored.
  // With three steps at once registers do not suffice for four blocks.
  const float sum = product.output<false, 2>(
      p.rows, plain_strip(weight.data, weight, 0, strip < last ? strip : last),
      static_cast<float>(weight.zero));
  const int n = strip * kStripOutputs + dev::lane();
  if (product.has_output() && n < weight.rows) dev::Global<float>(p.product.out).store(n, sum);
}

}  // namespace kakeya::cuda::device
