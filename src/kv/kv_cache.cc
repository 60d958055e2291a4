#include "kv/kv_cache.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"

namespace kakeya {

std::int64_t KvCacheSpec::capacity(const LayerCacheSpec& layer) const {
  if (layer.window == 0) return context;
  return std::min(context, layer.window + max_rows - 1);
}

MemoryClass KvCacheSpec::memory_class(const LayerCacheSpec& layer) const {
  if (of_drafter) return MemoryClass::kDrafter;
  return layer.window == 0 ? MemoryClass::kKvFull : MemoryClass::kKvSliding;
}

std::uint64_t KvCacheSpec::layer_bytes(const LayerCacheSpec& layer) const {
  const auto row =
      static_cast<std::uint64_t>(layer.num_kv_heads * layer.head_dim) * dtype_bytes(layer.dtype);
  return 2 * static_cast<std::uint64_t>(capacity(layer)) * row;
}

Footprint KvCacheSpec::estimate() const {
  Footprint footprint;
  for (const LayerCacheSpec& layer : layers) {
    footprint.reserved_bytes(memory_class(layer)) +=
        MemoryBudget::charged_bytes(layer_bytes(layer));
  }
  return footprint;
}

Result<KvCache> KvCache::create(const KvCacheSpec& spec, MemoryBudget& budget) {
  KvCache cache;
  cache.spec_ = spec;
  for (const LayerCacheSpec& layer : spec.layers) {
    const std::uint64_t bytes = spec.layer_bytes(layer);
    KAKEYA_ASSIGN_OR_RETURN(Buffer buffer, budget.allocate(spec.memory_class(layer), bytes));
    cache.rows_.push_back({.keys = buffer.data(),
                           .values = buffer.data() + bytes / 2,
                           .dtype = layer.dtype,
                           .capacity = spec.capacity(layer),
                           .num_kv_heads = layer.num_kv_heads,
                           .head_dim = layer.head_dim});
    cache.buffers_.push_back(std::move(buffer));
  }
  return cache;
}

Status KvCache::reserve(std::int64_t rows) {
  if (rows < 0 || rows > spec_.max_rows) {
    return invalid_argument("[kv] a block must have 0 to {} rows but has {}", spec_.max_rows, rows);
  }
  if (rows > spec_.context - length_) {
    return error(
        StatusCode::kResourceExhausted,
        "context of {} tokens is full: {} are in use and {} more are wanted; raise it with "
        "--ctx",
        spec_.context, length_, rows);
  }
  reserved_ = rows;
  written_ = std::max(written_, length_ + rows);
  return {};
}

void KvCache::commit(std::int64_t rows) {
  KAKEYA_CHECK(rows >= 0 && rows <= reserved_);
  length_ += rows;
  reserved_ -= rows;
}

Status KvCache::check_truncate(Position length) const {
  if (length < 0 || length > length_) {
    return invalid_argument("[kv] cannot truncate {} tokens to {}", length_, length);
  }
  if (length == 0) return {};
  for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
    const std::int64_t window = spec_.layers[i].window;
    if (window == 0) continue;
    const Position oldest_held = std::max<Position>(0, written_ - rows_[i].capacity);
    const Position oldest_needed = std::max<Position>(0, length - window + 1);
    if (oldest_needed < oldest_held) {
      return error(StatusCode::kFailedPrecondition,
                   "[kv] cannot go back to {} tokens: rows before position {} have left the window "
                   "of {}; the furthest possible is {}",
                   length, oldest_held, window, oldest_held + window - 1);
    }
  }
  return {};
}

Status KvCache::truncate(Position length) {
  KAKEYA_TRY(check_truncate(length));
  if (length == 0) {
    clear();
    return {};
  }
  length_ = length;
  reserved_ = 0;
  return {};
}

void KvCache::clear() {
  length_ = 0;
  reserved_ = 0;
  written_ = 0;
}

Footprint KvCache::footprint() const {
  Footprint footprint = spec_.estimate();
  for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
    const LayerCacheSpec& layer = spec_.layers[i];
    const std::int64_t visible =
        layer.window == 0 ? length_ : std::min<std::int64_t>(length_, layer.window);
    const std::uint64_t bytes = spec_.layer_bytes(layer);
    footprint.live_bytes(spec_.memory_class(layer)) +=
        rows_[i].capacity == 0 ? 0
                               : bytes / static_cast<std::uint64_t>(rows_[i].capacity) *
                                     static_cast<std::uint64_t>(visible);
  }
  return footprint;
}

}  // namespace kakeya
