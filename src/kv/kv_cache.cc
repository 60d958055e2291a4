#include "kv/kv_cache.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace kakeya {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

std::int64_t KvCacheSpec::capacity(const LayerCacheSpec& layer) const {
  if (layer.reach() == 0) return context;
  return std::min(context, layer.sink + layer.reach() + max_rows - 1);
}

MemoryClass KvCacheSpec::memory_class(const LayerCacheSpec& layer) const {
  if (of_drafter) return MemoryClass::kDrafter;
  if (layer.is_codes) return MemoryClass::kCodes;
  return layer.window == 0 ? MemoryClass::kKvFull : MemoryClass::kKvSliding;
}

BlockLayout::BlockLayout(std::int64_t capacity, std::int64_t position_bytes) {
  // Blocks of one size that waste as little as they can: all but a slot of each.
  const std::int64_t fewest = ceil_div(capacity, kMostSlots);
  block_slots = ceil_div(capacity, fewest);
  block_bytes = block_slots * position_bytes;
  blocks = ceil_div(capacity, block_slots);
  groups = std::max<std::int64_t>(1, blocks / ceil_div(kGroupBytes, block_bytes));
}

BlockLayout KvCacheSpec::layout(const LayerCacheSpec& layer) const {
  return {capacity(layer), layer.position_bytes()};
}

Status KvCacheSpec::check() const {
  for (const LayerCacheSpec& layer : layers) {
    if (kv_format_supports(layer.format, layer.head_dim)) continue;
    return invalid_argument(
        "the KV cache cannot be stored as {}: it takes heads of 8 to 512 elements, a power of two, "
        "but {} have {} elements",
        kv_format_name(layer.format),
        of_drafter          ? "the drafter's"
        : layer.is_codes    ? "codes"
        : layer.window == 0 ? "those of full layers"
                            : "those of sliding layers",
        layer.head_dim);
  }
  return {};
}

Position KvCacheSpec::oldest_held(const LayerCacheSpec& layer, Position written) const {
  const std::int64_t slots = capacity(layer);
  const std::int64_t sink = std::min(layer.sink, slots);
  const Position oldest = written - (slots - sink);
  // The sink's rows are never overwritten by others.
  return oldest <= sink ? 0 : oldest;
}

bool KvCacheSpec::can_hold(const KvExtent& extent) const {
  if (extent.length == 0) return extent.written == 0;
  if (extent.length < 0 || extent.length > extent.written || extent.written > context) return false;
  return std::all_of(layers.begin(), layers.end(), [&](const LayerCacheSpec& layer) {
    const Position held = oldest_held(layer, extent.written);
    return layer.reach() == 0 || held == 0 || extent.length - layer.reach() + 1 >= held;
  });
}

std::array<KvRun, 2> KvCacheSpec::held_runs(const LayerCacheSpec& layer,
                                            const KvExtent& extent) const {
  const Position oldest = oldest_held(layer, extent.written);
  const std::int64_t sink =
      oldest == 0 ? 0 : std::min({layer.sink, capacity(layer), extent.length});
  return {KvRun{0, sink}, KvRun{std::min(oldest, extent.length), extent.length}};
}

Footprint KvCacheSpec::estimate() const {
  Footprint footprint;
  for (const LayerCacheSpec& layer : layers) {
    if (grows_in(layer)) continue;
    const BlockLayout blocks = layout(layer);
    for (std::int64_t g = 0; g < blocks.groups; ++g) {
      const std::int64_t count = blocks.group_begin(g + 1) - blocks.group_begin(g);
      footprint.reserved_bytes(memory_class(layer)) +=
          MemoryBudget::charged_bytes(static_cast<std::uint64_t>(count * blocks.block_bytes));
    }
  }
  return footprint;
}

Footprint KvCacheSpec::growth(Position length) const {
  Footprint footprint;
  for (const LayerCacheSpec& layer : layers) {
    if (!grows_in(layer)) continue;
    const BlockLayout blocks = layout(layer);
    const auto count =
        static_cast<std::uint64_t>(ceil_div(std::min(length, capacity(layer)), blocks.block_slots));
    footprint.reserved_bytes(memory_class(layer)) +=
        count * MemoryBudget::charged_bytes(static_cast<std::uint64_t>(blocks.block_bytes));
  }
  return footprint;
}

KvCache::Layer::Layer(const KvCacheSpec& spec, const LayerCacheSpec& layer) {
  const BlockLayout layout = spec.layout(layer);
  const auto count = static_cast<std::size_t>(layout.blocks);
  blocks.resize(count);
  keys.resize(layer.one_vector ? 0 : count);
  values.resize(count);
  rows = {.keys = layer.one_vector ? nullptr : keys.data(),
          .values = values.data(),
          .block_slots = layout.block_slots,
          .format = layer.format,
          .capacity = spec.capacity(layer),
          .num_kv_heads = layer.num_kv_heads,
          .head_dim = layer.head_dim,
          .sink = std::min(layer.sink, spec.capacity(layer)),
          .code_bytes = layer.code_bytes};
}

void KvCache::Layer::set(std::size_t block, SharedBlock memory) {
  std::swap(blocks[block], memory);  // what was there is given up
  const std::int64_t half = rows.block_slots * rows.slot_bytes();
  const DevicePointer<std::byte> data = blocks[block].data();
  if (rows.keys != nullptr) keys[block] = data;
  values[block] = !data || rows.keys == nullptr ? data : data + half;
}

Result<KvCache> KvCache::create(const KvCacheSpec& spec, MemoryBudget& budget, MemorySpace& space) {
  KvCache cache;
  cache.spec_ = spec;
  cache.budget_ = &budget;
  cache.space_ = &space;
  for (const LayerCacheSpec& spec_layer : spec.layers) {
    const BlockLayout layout = spec.layout(spec_layer);
    Layer& layer = cache.layers_.emplace_back(spec, spec_layer);
    if (spec.grows_in(spec_layer)) {
      cache.partial_ = true;
      continue;
    }
    for (std::int64_t g = 0; g < layout.groups; ++g) {
      const std::int64_t begin = layout.group_begin(g);
      KAKEYA_ASSIGN_OR_RETURN(std::vector<SharedBlock> blocks,
                              SharedBlock::allocate(budget, space, spec.memory_class(spec_layer),
                                                    static_cast<std::uint64_t>(layout.block_bytes),
                                                    layout.group_begin(g + 1) - begin));
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        layer.set(static_cast<std::size_t>(begin) + i, std::move(blocks[i]));
      }
    }
  }
  cache.make_table();
  return cache;
}

void KvCache::make_table() {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LayerCacheSpec& spec = spec_.layers[i];
    KvLayer& layer = table_.emplace_back();
    layer.rows = layers_[i].rows;
    layer.window = spec.window;
    layer.kept = spec.kept;
    layer.is_restored = spec.restored;
    layer.is_coded = spec.is_coded();
    if (layer.is_coded) layer.coded.keys = rows(spec.key_codes);
    if (spec.value_codes >= 0) layer.coded.values = rows(spec.value_codes);
    if (!spec.restored) continue;
    layer.restored.codes = codes();
    if (codes().keys == nullptr) layer.restored.codes.keys = codes().values;
  }
}

void KvCache::set_decoders(std::int64_t index,
                           DevicePointer<const float> keys,
                           DevicePointer<const float> values) {
  RestoredRows& restored = table_[static_cast<std::size_t>(index)].restored;
  restored.key_decoder = keys;
  restored.value_decoder = values;
}

void KvCache::set_codes(std::shared_ptr<const KvCodes> codes) {
  codes_ = std::move(codes);
  std::int64_t owner = 0;  // calibrated codes know the layers of the model alone, which come first
  for (KvLayer& layer : table_) {
    if (layer.is_coded) {
      const KvCodes::Layer& made = codes_->layer(owner);
      layer.coded.key_codes = made.keys.data();
      layer.coded.value_codes = made.values.empty() ? nullptr : made.values.data();
      layer.coded.key_views = made.key_views.data();
      layer.coded.value_views = made.values.empty() ? nullptr : made.value_views.data();
    }
    ++owner;
  }
}

KvCache KvCache::fork() {
  KvCache copy;
  copy.spec_ = spec_;
  copy.budget_ = budget_;
  copy.space_ = space_;
  copy.length_ = length_;
  copy.written_ = written_;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = copy.layers_.emplace_back(spec_, spec_.layers[i]);
    const KvRows& kv = layer.rows;
    // Going back never leads behind a slot that was written anew, so positions below the capacity
    // lie in the slots of their number, whether or not the ring has wrapped since.
    const std::int64_t slots = std::min(kv.capacity, length_);
    const auto blocks = static_cast<std::size_t>(ceil_div(slots, kv.block_slots));
    for (std::size_t b = 0; b < blocks; ++b) layer.set(b, layers_[i].blocks[b].share());
  }
  copy.make_table();
  for (std::size_t i = 0; i < table_.size(); ++i) {
    copy.table_[i].restored.key_decoder = table_[i].restored.key_decoder;
    copy.table_[i].restored.value_decoder = table_[i].restored.value_decoder;
  }
  if (codes_ != nullptr) copy.set_codes(codes_);
  partial_ = true;
  copy.partial_ = true;
  return copy;
}

Result<SharedBlock> KvCache::free_block(std::size_t layer, std::size_t block) const {
  const LayerCacheSpec& spec = spec_.layers[layer];
  const BlockLayout layout = spec_.layout(spec);
  const auto index = static_cast<std::int64_t>(block);
  const std::int64_t begin = layout.group_begin(layout.group_of(index));
  const std::int64_t end = layout.group_begin(layout.group_of(index) + 1);
  for (std::int64_t other = begin; other < end; ++other) {
    const SharedBlock& held = layers_[layer].blocks[static_cast<std::size_t>(other)];
    if (SharedBlock claimed = held.claim(index - begin)) return claimed;
  }
  KAKEYA_ASSIGN_OR_RETURN(std::vector<SharedBlock> blocks,
                          SharedBlock::allocate(*budget_, *space_, spec_.memory_class(spec),
                                                static_cast<std::uint64_t>(layout.block_bytes), 1));
  return std::move(blocks.front());
}

Status KvCache::own_block(std::size_t layer, std::size_t block, std::vector<Fresh>& fresh) {
  const SharedBlock& held = layers_[layer].blocks[block];
  if (held && !held.is_shared()) return {};
  // A reservation that goes round a ring may end in the block in which it began.
  const auto is_this = [&](const Fresh& f) { return f.layer == layer && f.block == block; };
  if (std::any_of(fresh.begin(), fresh.end(), is_this)) return {};
  KAKEYA_ASSIGN_OR_RETURN(SharedBlock memory, free_block(layer, block));
  fresh.push_back({layer, block, std::move(memory)});
  return {};
}

Status KvCache::own_run(std::size_t layer, KvRun run, std::vector<Fresh>& fresh) {
  const KvRows& kv = layers_[layer].rows;
  std::int64_t step = 0;
  for (Position p = run.first; p < run.last; p += step) {
    const std::int64_t slot = kv.slot(p);
    const std::int64_t block = slot / kv.block_slots;
    KAKEYA_TRY(own_block(layer, static_cast<std::size_t>(block), fresh));
    step = std::min((block + 1) * kv.block_slots, kv.capacity) - slot;
  }
  return {};
}

void KvCache::install(std::vector<Fresh> fresh) {
  for (Fresh& f : fresh) {
    const SharedBlock& held = layers_[f.layer].blocks[f.block];
    if (held) space_->copy(held.data(), f.memory.data(), held.size());
    layers_[f.layer].set(f.block, std::move(f.memory));
  }
}

// Makes the blocks of these positions' slots this cache's own, or changes nothing.
Status KvCache::own_blocks(Position first, std::int64_t rows) {
  std::vector<Fresh> fresh;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    KAKEYA_TRY(own_run(i, {first, first + rows}, fresh));
  }
  install(std::move(fresh));
  return {};
}

Status KvCache::reserve(std::int64_t rows) {
  if (rows < 0 || rows > spec_.max_rows) {
    return invalid_argument("[kv] a block must have 0 to {} rows but has {}", spec_.max_rows, rows);
  }
  if (rows > spec_.context - length_) {
    return error(StatusCode::kResourceExhausted,
                 "context of {} tokens is full: {} are in use and {} more are wanted; raise "
                 "SessionOptions::context",
                 spec_.context, length_, rows);
  }
  if (partial_) KAKEYA_TRY(own_blocks(length_, rows));
  reserved_ = rows;
  written_ = std::max(written_, length_ + rows);
  return {};
}

Status KvCache::grow(Position length) {
  std::vector<Fresh> fresh;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!spec_.grows_in(spec_.layers[i])) continue;
    KAKEYA_TRY(own_run(i, {length_, std::min(length, spec_.context)}, fresh));
  }
  install(std::move(fresh));
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
    if (window == 0) continue;
    const Position held = spec_.oldest_held(spec_.layers[i], written_);
    const Position oldest_needed = std::max<Position>(0, length - window + 1);
    if (oldest_needed < held) {
      return error(StatusCode::kFailedPrecondition,
                   "[kv] cannot go back to {} tokens: rows before position {} have left the window "
                   "of {}; the furthest possible is {}",
                   length, held, window, held + window - 1);
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

Result<KvCache::Extent> KvCache::extent(Position length) const {
  KAKEYA_TRY(check_truncate(length));
  return Extent{length, length == 0 ? 0 : written_};
}

Status KvCache::prepare_restore(const Extent& extent) {
  if (!spec_.can_hold(extent)) {
    return data_loss("[kv] {} tokens of {} written are not what a session of {} can hold",
                     extent.length, extent.written, spec_.context);
  }
  if (!partial_) return {};  // every block is there
  std::vector<Fresh> fresh;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    for (const KvRun& run : spec_.held_runs(spec_.layers[i], extent)) {
      KAKEYA_TRY(own_run(i, run, fresh));
    }
  }
  install(std::move(fresh));
  return {};
}

void KvCache::restore(const Extent& extent) {
  length_ = extent.length;
  written_ = extent.written;
  reserved_ = 0;
}

std::vector<KvPiece> KvCache::row_pieces(std::int64_t index, bool keys, KvRun run) const {
  const KvRows& kv = rows(index);
  std::vector<KvPiece> pieces;
  if (keys && kv.keys == nullptr) return pieces;
  std::int64_t step = 0;
  for (Position p = run.first; p < run.last; p += step) {
    const std::int64_t slot = kv.slot(p);
    const std::int64_t end = (slot / kv.block_slots + 1) * kv.block_slots;
    step = std::min(std::min(end, kv.capacity) - slot, run.last - p);
    pieces.push_back({kv.row(keys ? kv.keys : kv.values, slot),
                      static_cast<std::size_t>(step * kv.slot_bytes())});
  }
  return pieces;
}

std::vector<KvPiece> KvCache::held_rows(std::int64_t index, bool keys, const Extent& extent) const {
  std::vector<KvPiece> pieces;
  for (const KvRun& run : spec_.held_runs(layer(index), extent)) {
    for (const auto& piece : row_pieces(index, keys, run)) pieces.push_back(piece);
  }
  return pieces;
}

void KvCache::clear() {
  // Shared blocks would only be copied before they are written over.
  for (Layer& layer : layers_) {
    for (std::size_t b = 0; partial_ && b < layer.blocks.size(); ++b) {
      if (layer.blocks[b].is_shared()) layer.set(b, {});
    }
  }
  length_ = 0;
  reserved_ = 0;
  written_ = 0;
}

Footprint KvCache::footprint() const {
  Footprint footprint;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LayerCacheSpec& layer = spec_.layers[i];
    std::set<const void*> counted;  // what is not there is of the group null
    for (const SharedBlock& block : layers_[i].blocks) {
      if (!counted.insert(block.group()).second) continue;
      footprint.reserved_bytes(spec_.memory_class(layer)) += block.group_bytes();
    }
    const std::int64_t visible =
        layer.reach() == 0 ? length_ : std::min<std::int64_t>(length_, layer.sink + layer.reach());
    footprint.live_bytes(spec_.memory_class(layer)) +=
        static_cast<std::uint64_t>(visible * layer.position_bytes());
  }
  return footprint;
}

}  // namespace kakeya
