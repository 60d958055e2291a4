// Attention in parts of several sequences by one launch: a block finds its sequence, and does what
// a launch of that sequence alone would have it do.
#pragma once

#include "backend/cuda/device/tensor_attention.h"

namespace kakeya::cuda::device {

// The sequence of a block of several ones, and the number of the block in its rows of blocks.
struct SequenceBlock {
  int sequence = 0;
  int block;

  KAKEYA_DEVICE explicit SequenceBlock(const ManyAttentionsParams& p)
      : block(static_cast<int>(dev::block_y())) {
    while (sequence + 1 < p.count && block >= p.ends[sequence]) ++sequence;
    if (sequence > 0) block -= static_cast<int>(p.ends[sequence - 1]);
  }
};

// Parts of several sequences, one behind the other. Where they are alike, whole parts come before
// the first and the last one of each, which mostly are shorter: more blocks than have room at once
// then end together. Grid: kv heads, tiles * parts of all.
template <bool kOneVector, int kMostElements>
KAKEYA_DEVICE void attend_to_part(const ManyAttentionsParams& p) {
  int sequence = 0;
  int part = 0;
  if (p.parts == 0) {
    const SequenceBlock own(p);
    sequence = own.sequence;
    part = own.block;
  } else {
    const auto block = static_cast<unsigned>(dev::block_y());
    const auto count = static_cast<unsigned>(p.count);
    const auto last = static_cast<int>(p.parts) - 1;
    const auto rank = static_cast<int>(block / count);
    sequence = static_cast<int>(block % count);
    part = rank == last ? last : (rank + 1) % last;
  }
  attend_to_part<kOneVector, kMostElements>(p.sequences[sequence], part);
}
KAKEYA_DEVICE void tensor_parts_of_many(const ManyAttentionsParams& p) {
  attend_to_part<false, kNarrowHead>(p);
}
KAKEYA_DEVICE void one_vector_parts_of_many(const ManyAttentionsParams& p) {
  attend_to_part<true, kMaxHeadDim>(p);
}

// Grid: heads * head_dim / 32, rows of all.
KAKEYA_DEVICE void join_parts_of_many(const ManyAttentionsParams& p) {
  const SequenceBlock own(p);
  join_parts(p.sequences[own.sequence], own.block, p.rounded, static_cast<int>(dev::block_y()));
}

}  // namespace kakeya::cuda::device
