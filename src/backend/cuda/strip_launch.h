// How many warps take strips of integers (device/integer_strips.h), and how they use shared memory.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "backend/cuda/cuda_matrix.h"
#include "backend/cuda/device/params.h"
#include "backend/cuda/driver.h"

namespace kakeya::cuda {

// The most of a step of some matrices.
struct StripNeeds {
  explicit StripNeeds(std::initializer_list<const CudaMatrix*> matrices);

  int words = 0;
  bool halves = false;
};

struct StripLaunch {
  LaunchShape shape;
  device::StripPlan plan;
};

// Blocks that take `items`, strips or pairs of them, with `tiles` tiles of kRows rows (1,
// kIntegerRows or kManyIntegerRows). Of one tile not more blocks than cards have room for.
template <int kRows>
StripLaunch strip_launch(std::int64_t items,
                         std::int64_t tiles,
                         std::int64_t columns,
                         const StripNeeds& needs);
// For grouped_integer_hidden() and grouped_integer_output().
StripLaunch grouped_launch(std::int64_t items,
                           std::int64_t tiles,
                           std::int64_t columns,
                           const StripNeeds& needs);
// For kernels in which four warps share each of `matrices`' strips: nothing where those are too
// many or do not fit.
std::optional<StripLaunch> split_launch(std::int64_t items,
                                        std::initializer_list<const CudaMatrix*> matrices);
// For integer_expert_output().
StripLaunch rank_launch(std::int64_t strips,
                        std::int64_t top_k,
                        std::int64_t columns,
                        const StripNeeds& needs);

}  // namespace kakeya::cuda
