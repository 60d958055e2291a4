// The router of one row and the choice of its experts as one launch (device/early_route.h).
#pragma once

#include "backend/cuda/fuse.h"

namespace kakeya::cuda {

// Makes one launch of a product that makes logits and a choice among them right behind it.
void join_routes(FusedLaunches& fused);

}  // namespace kakeya::cuda
