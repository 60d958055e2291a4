// How many warps take strips of integers (device/integer_strips.h), and how they use shared memory.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/cuda/device/params.h"
#include "backend/cuda/driver.h"

namespace kakeya::cuda {

struct StripLaunch {
  Kernel kernel;
  LaunchShape shape;
};

// Each chooses the kernel and its blocks for parameters that are complete but for their plan, which
// it sets.
StripLaunch plan_product(device::IntegerProductParams& p);
StripLaunch plan_gated_product(device::GatedProductParams& p);
// For one row; nothing where its experts do not fit and are to be grouped.
std::optional<StripLaunch> plan_hidden(device::ExpertHiddenParams& p);
// `are_rounded`: whoever makes the rows may round them, too.
StripLaunch plan_output(device::ExpertOutputParams& p, bool are_rounded);
// A product of one row beside the outputs of experts (device/plain_outputs.h), whose shape is
// `outputs`; nothing where it does not fit.
std::optional<LaunchShape> plan_beside(const device::IntegerProductParams& p,
                                       const LaunchShape& outputs);
// Pairs of a row and a rank in tiles, of which some may have none.
struct PairTiles {
  std::int64_t count;
  std::int64_t pairs;  // of one, at most
};
PairTiles choose_pair_tiles(const device::Weight& gate,
                            const device::Weight& up,
                            const device::Weight& down,
                            std::int64_t pairs,
                            std::int64_t num_experts);
StripLaunch plan_grouped_hidden(device::ExpertHiddenParams& p, const PairTiles& tiles);
StripLaunch plan_grouped_output(device::ExpertOutputParams& p, const PairTiles& tiles);

}  // namespace kakeya::cuda
