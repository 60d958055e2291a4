// Products of one row within launches of the outputs of experts (device/plain_outputs.h).
#pragma once

#include "backend/cuda/fuse.h"

namespace kakeya::cuda {

// Brings products behind what was between them and outputs of experts, where nothing there touches
// what they do, and makes one launch of both.
void join_outputs(FusedLaunches& fused);

}  // namespace kakeya::cuda
