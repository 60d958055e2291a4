// Kernel fusion: launches of a pass that become one. What a pass computes, and every bit of it,
// stays as it is; the launches may change places where nothing that one writes is touched by
// another.
//
//   operations on rows (norm, sum, copy, rounding to codes)   row_steps, a block a row
//   norms of heads, rotary embedding, rows of the cache       head_steps, a block a head
//   products of the same rows with quantised weights          one product of several parts
//   rounding to codes                                         fold_roundings.h
//   a product beside the outputs of experts                   join_outputs.h
//   the router and the choice of experts                      join_routes.h
//   parts of attention and their sum, of few heads            join_attention.h
//
// Launches that share no memory need not wait for each other: the dense MLP runs beside the router
// and the experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cuda/driver.h"

namespace kakeya::cuda {

// The launches of a pass of `rows` rows, fused. Others stay.
struct FusedLaunches {
  LaunchList launches;
  // Where each of the unfused ones stands that may_change_alone(); SIZE_MAX for all others.
  std::vector<std::size_t> places;
};
FusedLaunches fuse(const LaunchList& launches, std::int64_t rows);

// Fused lists that are kept, since passes of one kind have the same launches, but for attention
// that needs more blocks.
class FusedLists {
 public:
  // The fused launches; valid until the next call.
  const LaunchList& of(const LaunchList& launches, std::int64_t rows);

 private:
  struct Kept {
    LaunchList launches;
    std::int64_t rows = 0;
    FusedLaunches fused;
    std::uint64_t last_used = 0;
    // The list that `launches` was last, with its last change then.
    std::uint64_t identity = 0;
    std::uint64_t change = 0;
  };
  static constexpr std::size_t kMostKept = 24;

  // Brings those up to date that may change alone. False if others differ, or what they touch.
  static bool renew(Kept& kept, const LaunchList& launches);

  std::vector<Kept> kept_;
  std::uint64_t uses_ = 0;
};

}  // namespace kakeya::cuda
