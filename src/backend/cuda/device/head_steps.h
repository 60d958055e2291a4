// What follows the products that make queries, keys and values, by one kernel: the norm of each
// head, rotary embedding, rows of the cache. The arithmetic is that of the operations by
// themselves.
#pragma once

#include "backend/cuda/device/norm.h"
#include "backend/cuda/device/store.h"

namespace kakeya::cuda::device {

// The head of a block, of all tracks' heads.
struct TrackHead {
  int track = 0;
  std::int64_t head;

  KAKEYA_DEVICE explicit TrackHead(const HeadStepsParams& p) : head(dev::block_x()) {
    while (track + 1 < p.count && head >= p.tracks[track].heads) head -= p.tracks[track++].heads;
  }
};

KAKEYA_DEVICE void norm_head(const HeadTrack& track,
                             const Held& held,
                             std::int64_t from,
                             float (&x)[kHeld]) {
  const dev::Global<const float> row(track.x);
  const dev::Global<const float> weight(track.weight);
  const auto load = [&](std::int64_t d) { return row.load(from + d); };
  const float factor = norm_factor(load, held.size(), track.eps);
  KAKEYA_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    const int e = held.element(k);
    if (e < 0) continue;
    const float scaled = x[k] * factor;
    x[k] = track.weight == nullptr ? scaled : scaled * weight.load(e);
  }
}

// As rope(), of heads of an even size.
KAKEYA_DEVICE void rotate_head(const HeadTrack& track, const Held& held, float (&x)[kHeld]) {
  const dev::Global<const float> cosines(track.cos + dev::block_y() * held.half());
  const dev::Global<const float> sines(track.sin + dev::block_y() * held.half());
  KAKEYA_UNROLL
  for (int k = 0; k < kHeldPairs; ++k) {
    const int i = held.element(k);
    if (i < 0) continue;
    const float cos = cosines.load(i);
    const float sin = sines.load(i);
    const float low = x[k];
    const float high = x[k + kHeldPairs];
    x[k] = low * cos - high * sin;
    x[k + kHeldPairs] = high * cos + low * sin;
  }
}

// A warp a head. Grid: heads of all tracks, rows.
KAKEYA_DEVICE void head_steps(const HeadStepsParams& p) {
  const TrackHead at(p);
  const HeadTrack& track = p.tracks[at.track];
  const Held held(static_cast<int>(p.size));
  const std::int64_t from = (dev::block_y() * track.heads + at.head) * p.size;
  const dev::Global<const float> row(track.x);
  float x[kHeld] = {};
  KAKEYA_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    const int e = held.element(k);
    if (e >= 0) x[k] = row.load(from + e);
  }
  if (track.eps >= 0.0F) norm_head(track, held, from, x);
  if (track.cos != nullptr) rotate_head(track, held, x);
  dev::sync_warp();  // in place: nobody reads the row any more
  const dev::Global<float> out(track.out);
  KAKEYA_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    const int e = held.element(k);
    if (e >= 0) out.store(from + e, x[k]);
  }
  if (track.blocks == nullptr) return;
  const std::int64_t position = dev::Global<const std::int64_t>(p.positions).load(dev::block_y());
  const std::uint64_t address = vector_address(p.cache, track.blocks, position, at.head);
  const dev::Global<std::uint16_t> bf16(reinterpret_cast<std::uint16_t*>(address));
  const dev::Global<float> f32(reinterpret_cast<float*>(address));
  KAKEYA_UNROLL
  for (int k = 0; k < kHeld; ++k) {
    const int e = held.element(k);
    if (e < 0) continue;
    if (p.cache.format == RowFormat::kBf16) {
      bf16.store(e, float_to_bf16(x[k]));
    } else {
      f32.store(e, x[k]);
    }
  }
}

}  // namespace kakeya::cuda::device
