// Attention in parts that the last block of each kv head brings together, where it has few heads to
// do that for. The bits are those of join_attention_parts().
#pragma once

#include "backend/cuda/device/tensor_attention.h"

namespace kakeya::cuda::device {

// By a block: brings the parts of a row's head together, of which there are kJoinedParts at most. A
// thread has a column.
KAKEYA_DEVICE void join_head(const AttentionParams& p,
                             const RowPositions<int>& at,
                             int row,
                             int head) {
  const PartJoiner joiner = {p, row, head, 0, seen_by(p, at, at.first + row), parts_of(p, at)};
  const int count = joiner.parts.count;
  const auto head_dim = static_cast<int>(p.cache.head_dim);
  float carried = minus_infinity();
  joiner.share_factors(0, joiner.load_numbers(0, count), carried);
  dev::sync_block();
  if (dev::thread() >= head_dim) return;
  const dev::Global<const float> partials(p.partials);
  const auto value_of = [&](int part) {
    return joiner.sees(part) ? partials.load(part_place(p, row, head, part) + 2 + dev::thread())
                             : 0.0F;
  };
  JoinedSums sums;
  int added = 0;
  sums.add<8>(added, count, value_of);
  sums.add<1>(added, count, value_of);
  const std::int64_t first = (row * p.num_heads + head) * p.cache.head_dim;
  const float joined = sums.value / sums.total;
  dev::Global<float>(p.out).store(first + dev::thread(), joined);
  const int run = head * (head_dim / dev::kWarp) + dev::warp();
  if (p.rounded.codes != nullptr) round_run(p.rounded, row, run, joined);
}

// For one tile of queries, and heads of no more columns than a block has threads. Grid: kv heads,
// parts.
KAKEYA_DEVICE void joined_attention_part(const AttentionParams& p) {
  attend_to_part<false, kNarrowHead>(p, static_cast<int>(dev::block_y()));
  const auto kv_head = static_cast<int>(dev::block_x());
  if (!dev::last_of(p.counters + kv_head, static_cast<std::uint32_t>(p.spans))) return;
  const auto at = row_positions<int>(p);
  const auto group = static_cast<int>(p.num_heads / p.cache.num_kv_heads);
  KAKEYA_NO_UNROLL
  for (int i = 0; i < static_cast<int>(p.rows) * group; ++i) {
    if (i > 0) dev::sync_block();
    join_head(p, at, i / group, kv_head * group + i % group);
  }
}

}  // namespace kakeya::cuda::device
