// Steps behind the products that make queries, keys and values, by one kernel: the norm of each
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

inline constexpr int kHeadThreads = kNormSegments * dev::kWarp;
inline constexpr int kHeadElements = kMaxHeadDim / kHeadThreads;  // that a thread holds, at most
// Shared words: sums of segments, and the head.
inline constexpr int kHeadWord = kNormSegments;
inline constexpr int kHeadStepsWords = kHeadWord + kMaxHeadDim;

// The elements of a head that a thread has: a warp those of a segment, as in rms_norm().
struct OwnElements {
  int first;
  int end;  // of the segment

  KAKEYA_DEVICE explicit OwnElements(int size) {
    const int length = (size + kNormSegments - 1) / kNormSegments;
    const int last = (dev::warp() + 1) * length;
    first = dev::warp() * length + dev::lane();
    end = last < size ? last : size;
  }
  KAKEYA_DEVICE int element(int i) const { return first + i * dev::kWarp; }
  KAKEYA_DEVICE bool has(int i) const { return element(i) < end; }
};

// Whatever a head takes that is there before the launch has waited for the previous one.
struct HeadInputs {
  float weights[kHeadElements] = {};
  std::uint64_t address = 0;  // where it is stored

  KAKEYA_DEVICE HeadInputs(const HeadStepsParams& p, const TrackHead& at, const OwnElements& own) {
    const HeadTrack& track = p.tracks[at.track];
    const dev::Global<const float> weight(track.weight);
    KAKEYA_UNROLL
    for (int i = 0; i < kHeadElements; ++i) {
      if (track.weight != nullptr && own.has(i)) weights[i] = weight.load_fresh(own.element(i));
    }
    if (track.stored == StoredAs::kNothing) return;
    const bool are_keys = track.stored == StoredAs::kKeys;
    address = stored_address(p.to, are_keys, dev::block_y(), at.head);
  }
};

// Factors of rotary embedding of the own elements; on their way while a head's norm is made.
struct HeadAngles {
  float cosines[kHeadElements] = {};
  float sines[kHeadElements] = {};

  KAKEYA_DEVICE HeadAngles(const HeadTrack& track, const OwnElements& own, int half) {
    if (track.cos == nullptr) return;
    const dev::Global<const float> cos(track.cos + dev::block_y() * half);
    const dev::Global<const float> sin(track.sin + dev::block_y() * half);
    KAKEYA_UNROLL
    for (int i = 0; i < kHeadElements; ++i) {
      if (!own.has(i)) continue;
      const int pair = own.element(i) < half ? own.element(i) : own.element(i) - half;
      cosines[i] = cos.load(pair);
      sines[i] = sin.load(pair);
    }
  }
};

KAKEYA_DEVICE void norm_head(const HeadTrack& track,
                             const float (&weights)[kHeadElements],
                             const OwnElements& own,
                             int size,
                             float (&x)[kHeadElements]) {
  const dev::Shared<float> sums(0);
  float squares[1] = {0.0F};
  KAKEYA_UNROLL
  for (int i = 0; i < kHeadElements; ++i) {
    if (own.has(i)) squares[0] = dev::fma(x[i], x[i], squares[0]);
  }
  dev::warp_sums(squares);
  if (dev::lane() == 0) sums.store(dev::warp(), squares[0]);
  dev::sync_block();
  const float factor = norm_factor(add_segments(sums), size, track.eps);
  KAKEYA_UNROLL
  for (int i = 0; i < kHeadElements; ++i) {
    const float scaled = x[i] * factor;
    x[i] = track.weight == nullptr ? scaled : scaled * weights[i];
  }
}

// As rope(), of heads of an even size. The other element of a pair is another thread's.
KAKEYA_DEVICE void rotate_head(const HeadAngles& angles,
                               const OwnElements& own,
                               int half,
                               float (&x)[kHeadElements]) {
  const dev::Shared<float> head(kHeadWord);
  KAKEYA_UNROLL
  for (int i = 0; i < kHeadElements; ++i) {
    if (own.has(i)) head.store(own.element(i), x[i]);
  }
  dev::sync_block();
  KAKEYA_UNROLL
  for (int i = 0; i < kHeadElements; ++i) {
    if (!own.has(i)) continue;
    const int e = own.element(i);
    const bool is_low = e < half;
    const float other = head.load(is_low ? e + half : e - half);
    const float turned = other * angles.sines[i];
    x[i] = is_low ? x[i] * angles.cosines[i] - turned : x[i] * angles.cosines[i] + turned;
  }
}

KAKEYA_DEVICE void store_head(RowFormat format,
                              std::uint64_t address,
                              const OwnElements& own,
                              const float (&x)[kHeadElements]) {
  const dev::Global<std::uint16_t> bf16(reinterpret_cast<std::uint16_t*>(address));
  const dev::Global<float> f32(reinterpret_cast<float*>(address));
  KAKEYA_UNROLL
  for (int i = 0; i < kHeadElements; ++i) {
    if (!own.has(i)) continue;
    if (format == RowFormat::kBf16) {
      bf16.store(own.element(i), float_to_bf16(x[i]));
    } else {
      f32.store(own.element(i), x[i]);
    }
  }
}

// A block a head. The next launch may start before this one has waited: attention alone comes
// behind it, and copies rows early that were there before the pass. Grid: heads of all tracks,
// rows.
KAKEYA_DEVICE void head_steps(const HeadStepsParams& p) {
  dev::let_next_start();
  const TrackHead at(p);
  const HeadTrack& track = p.tracks[at.track];
  const int size = static_cast<int>(p.size);
  const OwnElements own(size);
  const HeadInputs inputs(p, at, own);
  dev::wait_for_previous();
  const std::int64_t from = (dev::block_y() * track.heads + at.head) * p.size;
  const dev::Global<const float> row(track.x);
  float x[kHeadElements] = {};
  KAKEYA_UNROLL
  for (int i = 0; i < kHeadElements; ++i) {
    if (own.has(i)) x[i] = row.load(from + own.element(i));
  }
  const HeadAngles angles(track, own, size / 2);
  if (track.eps >= 0.0F) norm_head(track, inputs.weights, own, size, x);
  if (track.cos != nullptr) rotate_head(angles, own, size / 2, x);
  const dev::Global<float> out(track.out);
  KAKEYA_UNROLL
  for (int i = 0; i < kHeadElements; ++i) {
    if (own.has(i)) out.store(from + own.element(i), x[i]);
  }
  if (track.stored != StoredAs::kNothing) {
    store_head(p.to.cache.format, inputs.address, own, x);
  }
}

}  // namespace kakeya::cuda::device
