// The router of one row and the choice of its experts: by the last block that has made logits.
#pragma once

#include "backend/cuda/device/early_product.h"
#include "backend/cuda/device/route.h"

namespace kakeya::cuda::device {

// Grid: as early_row_product().
KAKEYA_DEVICE void early_route(const EarlyRouteParams& p) {
  early_row_product(p.product);
  const std::int64_t blocks = (p.product.weight.rows + kProductWarps - 1) / kProductWarps;
  if (!dev::last_of(p.route.counter, static_cast<std::uint32_t>(blocks))) return;
  choose_experts<kProductWarps * dev::kWarp>(p.route, 0);
}

}  // namespace kakeya::cuda::device
