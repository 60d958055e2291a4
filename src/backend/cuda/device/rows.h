// Operations on rows, each element or each row by itself.
#pragma once

#include "backend/cuda/device/integer_strips.h"
#include "backend/cuda/device/norm.h"

namespace kakeya::cuda::device {

inline constexpr int kElementThreads = 128;

// The element of a thread, where a block has kElementThreads of them.
KAKEYA_DEVICE std::int64_t own_element() {
  return dev::block_x() * kElementThreads + dev::thread();
}

// Grid: columns / kElementThreads, rows.
KAKEYA_DEVICE void embed(const EmbedParams& p) {
  const std::int64_t d = own_element();
  if (d >= p.table.cols) return;
  const std::int64_t id = dev::Global<const std::int32_t>(p.ids).load(dev::block_y());
  float value;
  if (p.table.type == WeightType::kIntegers) {
    value = integer_weight(p.table, id, d);
  } else {
    value = float_weight(p.table, id * p.table.cols + d);
  }
  dev::Global<float>(p.out).store(dev::block_y() * p.table.cols + d, p.scale * value);
}

// Norms a row by norm_factor(), computed by a block that has a warp for each segment. The lane's
// columns of it are held, as many as there are registers for. Grid: rows.
KAKEYA_DEVICE void rms_norm(const NormParams& p) {
  constexpr int kHeldColumns = 16;
  const dev::Global<const float> x(p.x + dev::block_x() * p.width);
  const dev::Global<const float> weight(p.weight);
  const std::int64_t length = (p.width + kNormSegments - 1) / kNormSegments;
  const std::int64_t last = (dev::warp() + 1) * length;
  const std::int64_t end = last < p.width ? last : p.width;
  const std::int64_t begin = dev::warp() * length + dev::lane();
  const std::int64_t rest = begin + kHeldColumns * dev::kWarp;
  float held[kHeldColumns] = {};
  float scales[kHeldColumns] = {};
  KAKEYA_UNROLL
  for (int i = 0; i < kHeldColumns; ++i) {
    const std::int64_t d = begin + i * dev::kWarp;
    if (d >= end) continue;
    held[i] = x.load(d);
    if (p.weight != nullptr) scales[i] = weight.load(d);
  }
  float own[1] = {0.0F};
  KAKEYA_UNROLL
  for (int i = 0; i < kHeldColumns; ++i) {
    if (begin + i * dev::kWarp < end) own[0] = dev::fma(held[i], held[i], own[0]);
  }
  for (std::int64_t d = rest; d < end; d += dev::kWarp) {
    const float value = x.load(d);
    own[0] = dev::fma(value, value, own[0]);
  }
  const dev::Shared<float> sums(0);
  dev::warp_sums(own);
  if (dev::lane() == 0) sums.store(dev::warp(), own[0]);
  dev::sync_block();
  const float factor = norm_factor(add_segments(sums), p.width, p.eps);
  const dev::Global<float> out(p.out + dev::block_x() * p.width);
  KAKEYA_UNROLL
  for (int i = 0; i < kHeldColumns; ++i) {
    if (begin + i * dev::kWarp >= end) continue;
    const float scaled = held[i] * factor;
    out.store(begin + i * dev::kWarp, p.weight == nullptr ? scaled : scaled * scales[i]);
  }
  for (std::int64_t d = rest; d < end; d += dev::kWarp) {
    const float scaled = x.load(d) * factor;
    out.store(d, p.weight == nullptr ? scaled : scaled * weight.load(d));
  }
}

// Grid: columns / kElementThreads, rows.
KAKEYA_DEVICE void gate(const GateParams& p) {
  const std::int64_t d = own_element();
  if (d >= p.width) return;
  const std::int64_t t = dev::block_y();
  const float own = dev::Global<const float>(p.gate).load(t * p.width + d);
  const float other = dev::Global<const float>(p.other).load(t * p.other_stride + d);
  dev::Global<float>(p.out).store(t * p.width + d, gated(p.silu, own, other));
}

// Grid: pairs / kElementThreads, rows.
KAKEYA_DEVICE void rope_table(const RopeTableParams& p) {
  const std::int64_t i = own_element();
  if (i >= p.half) return;
  const std::int64_t position = dev::Global<const std::int64_t>(p.positions).load(dev::block_y());
  const float frequency =
      i < p.num_frequencies ? dev::Global<const float>(p.frequencies).load(i) : 0.0F;
  const Turn turn = turn_by(static_cast<float>(position) * frequency);
  dev::Global<float>(p.cos).store(dev::block_y() * p.half + i, turn.cos);
  dev::Global<float>(p.sin).store(dev::block_y() * p.half + i, turn.sin);
}

// Grid: pairs of all heads / kElementThreads, rows.
KAKEYA_DEVICE void rope(const RopeParams& p) {
  const std::int64_t pair = own_element();
  if (pair >= p.width / 2) return;
  const std::int64_t i = pair % p.half;
  const std::int64_t at = dev::block_y() * p.width + pair / p.half * 2 * p.half + i;
  const dev::Global<float> x(p.x);
  const float cos = dev::Global<const float>(p.cos).load(dev::block_y() * p.half + i);
  const float sin = dev::Global<const float>(p.sin).load(dev::block_y() * p.half + i);
  const float low = x.load(at);
  const float high = x.load(at + p.half);
  x.store(at, low * cos - high * sin);
  x.store(at + p.half, high * cos + low * sin);
}

// Grid: elements / kElementThreads.
KAKEYA_DEVICE void add(const AddParams& p) {
  const std::int64_t i = own_element();
  if (i >= p.size) return;
  const float sum = dev::Global<const float>(p.a).load(i) + dev::Global<const float>(p.b).load(i);
  dev::Global<float>(p.out).store(i, sum * p.scale);
}

// Grid: columns / kElementThreads, rows.
KAKEYA_DEVICE void add_vector(const AddVectorParams& p) {
  const std::int64_t d = own_element();
  if (d >= p.width) return;
  const std::int64_t at = dev::block_y() * p.width + d;
  const dev::Global<float> x(p.x);
  x.store(at, x.load(at) + dev::Global<const float>(p.vector).load(d));
}

// Grid: columns / kElementThreads, rows.
KAKEYA_DEVICE void convolve(const ConvolveParams& p) {
  const std::int64_t d = own_element();
  if (d >= p.width) return;
  const std::int64_t r = dev::block_y();
  const dev::Global<const float> x(p.x);
  const dev::Global<const float> base(p.base);
  const dev::Global<const float> own(p.own + r * p.own_width + p.column);
  const std::int64_t taps = p.taps <= r + 1 ? p.taps : r + 1;
  float sum = 0.0F;
  for (std::int64_t o = 0; o < taps; ++o) {
    const float coefficient =
        base.load(o * p.width + d) + own.load(o * (p.width / p.group) + d / p.group);
    sum += coefficient * x.load((r - o) * p.width + d);
  }
  dev::Global<float>(p.out).store(r * p.width + d, sum);
}

KAKEYA_DEVICE void softcap(const SoftcapParams& p) {
  const std::int64_t i = own_element();
  if (i >= p.size) return;
  const dev::Global<float> x(p.x);
  const double cap = p.cap;
  x.store(i, static_cast<float>(cap * device::tanh(static_cast<double>(x.load(i)) / cap)));
}

// Grid: columns / kElementThreads, rows.
KAKEYA_DEVICE void copy_columns(const CopyColumnsParams& p) {
  const std::int64_t d = own_element();
  if (d >= p.width) return;
  const float value = dev::Global<const float>(p.x).load(dev::block_y() * p.width + d);
  dev::Global<float>(p.out).store(dev::block_y() * p.out_width + p.column + d, value);
}

}  // namespace kakeya::cuda::device
