#include "kv/kv_cache.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"

namespace kakeya {

std::int64_t KvCacheSpec::capacity(const LayerCacheSpec& layer) const {
  if (layer.reach() == 0) return context;
  return std::min(context, layer.sink + layer.reach() + max_rows - 1);
}

MemoryClass KvCacheSpec::memory_class(const LayerCacheSpec& layer) const {
  if (of_drafter) return MemoryClass::kDrafter;
  if (layer.is_codes) return MemoryClass::kCodes;
  return layer.window == 0 ? MemoryClass::kKvFull : MemoryClass::kKvSliding;
}

std::uint64_t KvCacheSpec::layer_bytes(const LayerCacheSpec& layer) const {
  return static_cast<std::uint64_t>(capacity(layer) * layer.position_bytes());
}

Status KvCacheSpec::check() const {
  for (const LayerCacheSpec& layer : layers) {
    if (kv_format_supports(layer.format, layer.head_dim)) continue;
    return invalid_argument(
        "keys and values cannot be stored as {}: it takes {}, but {} have {} elements",
        kv_format_name(layer.format),
        layer.format == KvFormat::kInt4 ? "heads of whole groups of 32"
                                        : "heads of 8 to 512 elements, a power of two",
        of_drafter          ? "the drafter's"
        : layer.is_codes    ? "codes"
        : layer.window == 0 ? "those of full layers"
                            : "those of sliding layers",
        layer.head_dim);
  }
  return {};
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
    cache.rows_.push_back({.keys = layer.one_vector ? nullptr : buffer.data(),
                           .values = buffer.data() + (layer.one_vector ? 0 : bytes / 2),
                           .format = layer.format,
                           .capacity = spec.capacity(layer),
                           .num_kv_heads = layer.num_kv_heads,
                           .head_dim = layer.head_dim,
                           .sink = std::min(layer.sink, spec.capacity(layer))});
    cache.buffers_.push_back(std::move(buffer));
  }
  for (const LayerCacheSpec& layer : spec.layers) {
    RestoredRows& restored = cache.restored_.emplace_back();
    if (!layer.restored) continue;
    restored.codes = cache.codes();
    restored.blend = spec.blend;
    if (layer.own_rows >= 0) restored.own = cache.rows(layer.own_rows);
  }
  return cache;
}

void KvCache::set_decoders(std::int64_t index, const float* keys, const float* values) {
  RestoredRows& restored = restored_[static_cast<std::size_t>(index)];
  restored.key_decoder = keys;
  restored.value_decoder = values;
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
    const std::int64_t window = spec_.layers[i].reach();
    const std::int64_t turn = rows_[i].capacity - rows_[i].sink;
    if (window == 0) continue;
    // The sink's rows are never overwritten by others.
    const Position oldest_held = written_ - turn <= rows_[i].sink ? 0 : written_ - turn;
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
  for (const LayerCacheSpec& layer : spec_.layers) {
    const std::int64_t visible =
        layer.reach() == 0 ? length_ : std::min<std::int64_t>(length_, layer.sink + layer.reach());
    footprint.live_bytes(spec_.memory_class(layer)) +=
        static_cast<std::uint64_t>(visible * layer.position_bytes());
  }
  return footprint;
}

}  // namespace kakeya
