// Attention in parts that its last blocks bring together (device/joined_attention.h).
#pragma once

#include <cstddef>

#include "backend/cuda/fuse.h"

namespace kakeya::cuda {

// Makes one launch of parts of attention and of what brings them together right behind it, where
// each kv head has little to join.
void join_attention(FusedLaunches& fused);

// Makes such a launch what launches i and i + 1 of others are now, or i - 1 and i, but for its
// rounding. False if it cannot be them any more.
bool renew_joined_attention(LaunchList& fused,
                            std::size_t place,
                            const LaunchList& launches,
                            std::size_t i);

}  // namespace kakeya::cuda
