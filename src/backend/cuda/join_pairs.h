// Launches that become one with the launch right behind them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "backend/cuda/fuse.h"

namespace kakeya::cuda {

// Makes one launch of `kernel` of each pair for which `pair_at(launches, i)`, i the first of both,
// gives its `params` and its `shape`; where that gives nothing, launches stay.
template <typename PairAt>
void join_pairs(FusedLaunches& fused, Kernel kernel, const PairAt& pair_at) {
  const LaunchList& from = fused.launches;
  LaunchList to;
  std::vector<std::size_t> moved(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    moved[i] = to.size();
    const auto both = pair_at(from, i);
    if (!both) {
      to.add(from.kernel(i), from.shape(i), from.parameters(i));
      continue;
    }
    to.add(kernel, both->shape, &both->params);
    moved[++i] = to.size() - 1;
  }
  for (std::size_t& place : fused.places) {
    if (place != SIZE_MAX) place = moved[place];
  }
  fused.launches = std::move(to);
}

}  // namespace kakeya::cuda
