// Rotary embedding, rows of the cache and attention as launches.
#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/device/restored_attention.h"
#include "backend/cuda/device/rows.h"
#include "backend/cuda/device/store.h"
#include "backend/cuda/device/tensor_attention.h"
#include "base/check.h"
#include "base/status.h"

namespace kakeya::cuda {
namespace {

LaunchShape pair_shape(std::int64_t pairs, std::int64_t rows) {
  return {(pairs + device::kElementThreads - 1) / device::kElementThreads, rows,
          device::kElementThreads, 0};
}

device::RowFormat row_format(KvFormat format) {
  switch (format) {
    case KvFormat::kF32:
      return device::RowFormat::kF32;
    case KvFormat::kBf16:
      return device::RowFormat::kBf16;
    case KvFormat::kInt8:
      return device::RowFormat::kInt8;
    case KvFormat::kE8:
      break;
  }
  return device::RowFormat::kE8;
}

Kernel stored_kernel(const device::CachedRows& rows) {
  if (rows.format != device::RowFormat::kBf16) return Kernel::coded_attention;
  return rows.keys == nullptr ? Kernel::one_vector_attention : Kernel::attention;
}

// The kernels of attention on tensor cores, for all that rows see and for parts of it.
Kernel tensor_kernel(const device::CachedRows& rows, bool has_parts) {
  if (rows.keys == nullptr) {
    return has_parts ? Kernel::tensor_one_vector_part : Kernel::tensor_one_vector_attention;
  }
  const bool is_wide = rows.head_dim > device::kNarrowHead;
  if (has_parts)
    return is_wide ? Kernel::wide_tensor_attention_part : Kernel::tensor_attention_part;
  return is_wide ? Kernel::wide_tensor_attention : Kernel::tensor_attention;
}

// The sequences whose attention in parts one launch takes. Wide heads with keys have no such
// kernel: it would need more registers than there are.
std::size_t most_together(const device::CachedRows& rows) {
  return rows.keys != nullptr && rows.head_dim > device::kNarrowHead ? 1 : device::kMostSequences;
}
Kernel kernel_of_many(const device::CachedRows& rows) {
  return rows.keys == nullptr ? Kernel::one_vector_parts_of_many : Kernel::tensor_parts_of_many;
}

// True if one launch can store rows of both: only what SequenceRows has differs.
bool are_stored_alike(device::CachedRows a, const device::CachedRows& b) {
  if ((a.keys == nullptr) != (b.keys == nullptr)) return false;
  a.keys = b.keys;
  a.values = b.values;
  a.capacity = b.capacity;
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

std::int64_t tiles_of(const device::AttentionParams& p, std::int64_t rows) {
  const std::int64_t queries = rows * (p.num_heads / p.cache.num_kv_heads);
  return (queries + device::kTileQueries - 1) / device::kTileQueries;
}

// A launch of all that rows see, or of parts, which several sequences may share.
LaunchShape tensor_shape(const device::AttentionParams& p, std::int64_t blocks_y) {
  const device::TileWords words = {static_cast<int>(p.cache.head_dim), p.cache.keys == nullptr};
  return {p.cache.num_kv_heads, blocks_y, device::kAttentionThreads,
          static_cast<std::uint32_t>(words.all())};
}
LaunchShape joining_shape(const device::AttentionParams& p, std::int64_t rows) {
  return {p.num_heads * p.cache.head_dim / device::kJoinedColumns, rows, device::kAttentionThreads,
          device::kJoinWords};
}

// Sums begin at multiples of so many floats.
constexpr std::int64_t kPartialsTogether = 64;

// Blocks that keep a card busy.
constexpr std::int64_t kEnoughBlocks = 256;

// The parts, of `size` positions, that have blocks, of which rows see `parts` now: so many that the
// next passes have the same launches. Where rows see more with each pass that is a multiple of
// kPartsAtOnce; a window is as long as before, and meets a part more where it lies across them.
constexpr std::int64_t kPartsAtOnce = 8;
std::int64_t parts_with_blocks(const device::AttentionParams& p, int parts, int size) {
  const std::int64_t rounded = (parts + kPartsAtOnce - 1) / kPartsAtOnce * kPartsAtOnce;
  if (p.window == 0 && p.kept == 0) return rounded;
  const std::int64_t reach =
      p.window == 0 || p.kept == 0 ? p.window + p.kept : std::min(p.window, p.kept);
  const std::int64_t most = (reach + p.rows - 3 + size) / size + 1;
  const std::int64_t sinks = (p.cache.sink + size - 1) / size;
  return std::max<std::int64_t>(parts, std::min(rounded, most + sinks));
}

}  // namespace

void CudaExecutor::begin(const Batch& batch) {
  close_pass();
  Executor::begin(batch);
  rounded_ = {};
  rounding_ = 0;  // so that passes of one kind have the same launches
  listed_rows_ = {};
  remembers_rounded_ = true;
  tables_.clear();
  layers_.clear();
  first_layers_.clear();
  for (const Segment& segment : batch.segments) {
    first_layers_.push_back(layers_.size());
    for (const KvLayer& layer : segment.layers) {
      LayerTables& tables = layers_.emplace_back();
      tables.rows = add_tables(layer.rows);
      tables.codes = add_tables(layer.restored.codes);
    }
  }
  if (!tables_.find()) {
    flush();
    if (const Status begun = tables_.upload(waits_); !begun) fail(begun.error());
  }
  prepare_inputs();
}

CudaExecutor::RowTables CudaExecutor::add_tables(const KvRows& rows) {
  const std::int64_t keys = tables_.add(rows.keys, rows);
  return {keys, tables_.add(rows.values, rows)};
}

device::CachedRows CudaExecutor::cached_rows(const KvRows& rows, const RowTables& tables) const {
  const auto* const all = tables_.data();
  return {tables.keys == BlockTables::kNone ? nullptr : all + tables.keys,
          tables.values == BlockTables::kNone ? nullptr : all + tables.values,
          rows.block_slots,
          rows.capacity,
          rows.sink,
          rows.num_kv_heads,
          rows.head_dim,
          rows.vector_bytes(),
          row_format(rows.format),
          0};
}

const CudaExecutor::LayerTables& CudaExecutor::layer_tables(std::size_t segment,
                                                            std::int64_t layer) const {
  return layers_[first_layers_[segment] + static_cast<std::size_t>(layer)];
}

void CudaExecutor::make_rope_table(ConstVector inverse_frequencies, RopeTable table) {
  const device::RopeTableParams parameters = {positions_,
                                              inverse_frequencies.data.address(),
                                              inverse_frequencies.size,
                                              batch().rows(),
                                              table.half,
                                              table.cos.address(),
                                              table.sin.address()};
  launch(Kernel::rope_table, pair_shape(table.half, batch().rows()), &parameters);
}

void CudaExecutor::apply_rope(Rows x, RopeTable table) {
  const device::RopeParams parameters = {
      x.data.address(), table.cos.address(), table.sin.address(), x.count, x.width, table.half};
  launch(Kernel::rope, pair_shape(x.width / 2, x.count), &parameters);
}

void CudaExecutor::store_prepared(PreparedRows& prepared, ConstRows keys, ConstRows values) {
  device::CachePlaces& to = prepared.to;
  if (to.num_sequences == 0) return;
  to.positions = positions_ + prepared.first;
  const device::CachedRows& cache = to.cache;
  const std::int64_t first = prepared.first * cache.num_kv_heads * cache.head_dim;
  const LaunchShape shape = {cache.num_kv_heads, to.sequences[to.num_sequences - 1].end, dev::kWarp,
                             cache.format == device::RowFormat::kE8 ? device::kStoreWords : 0U};
  device::StoreParams parameters = {keys.data.address() + first, to, true, {}};
  if (cache.keys != nullptr) launch(Kernel::store, shape, &parameters);
  parameters.rows = values.data.address() + first;
  parameters.are_keys = false;
  launch(Kernel::store, shape, &parameters);
  prepared = {};
}

void CudaExecutor::prepare_rows(PreparedRows& prepared,
                                ConstRows keys,
                                ConstRows values,
                                const Segment& segment,
                                const device::CachedRows& cache) {
  const device::CachePlaces& others = prepared.to;
  if (others.num_sequences > 0) {
    const std::int64_t end = prepared.first + others.sequences[others.num_sequences - 1].end;
    const bool fits = others.num_sequences < device::kMostSequences && end == segment.first_row;
    if (!fits || !are_stored_alike(others.cache, cache)) store_prepared(prepared, keys, values);
  }
  device::CachePlaces& to = prepared.to;
  if (to.num_sequences == 0) {
    prepared.first = segment.first_row;
    to.cache = cache;
  }
  to.sequences[to.num_sequences++] = {segment.first_row + segment.rows - prepared.first, cache.keys,
                                      cache.values, cache.capacity};
}

void CudaExecutor::store_kv(ConstRows keys, ConstRows values, std::int64_t layer) {
  PreparedRows prepared;
  for (std::size_t s = 0; s < batch().segments.size(); ++s) {
    const Segment& segment = batch().segments[s];
    const KvRows& rows = segment.layers[static_cast<std::size_t>(layer)].rows;
    prepare_rows(prepared, keys, values, segment, cached_rows(rows, layer_tables(s, layer).rows));
  }
  store_prepared(prepared, keys, values);
}

// Where the rows of an attention are, which the device reads by itself.
template <typename Int>
device::RowPositions<Int> CudaExecutor::row_positions(const device::AttentionParams& p) const {
  return {p,
          static_cast<Int>(batch().positions[static_cast<std::size_t>(p.positions - positions_)])};
}

// The most spans that one of the rows sees.
std::int64_t CudaExecutor::most_spans(const device::AttentionParams& p,
                                      std::int64_t rows,
                                      bool restored) const {
  std::int64_t most = 1;
  const auto at = row_positions<std::int64_t>(p);
  for (std::int64_t row = 0; row < rows; ++row) {
    const device::Seen seen = device::seen_by(p, at, at.first + row);
    most = std::max(most, device::chunks_of(restored ? device::with_restored(seen) : seen).spans());
  }
  return most;
}

// Takes as many rows at a time as there is room for the sums of their spans.
void CudaExecutor::attend(device::AttentionParams p,
                          std::int64_t rows,
                          const RestoredRows* restored,
                          const LayerTables& tables,
                          const AttentionSettings& settings) {
  p.spans = most_spans(p, rows, restored != nullptr);
  p.partials = partials_;
  const std::int64_t width = p.num_heads * p.cache.head_dim;
  const std::int64_t most = rows_at_once(p, rows);
  for (std::int64_t begin = 0; begin < rows; begin += most) {
    const std::int64_t count = std::min(most, rows - begin);
    LaunchShape shape = {p.num_heads, count * p.spans, device::kAttentionWarps * dev::kWarp,
                         device::kAttentionWords};
    const LaunchShape spans = {p.num_heads, count, dev::kWarp, 0};
    if (restored == nullptr) {
      launch(stored_kernel(p.cache), shape, &p);
      if (p.spans > 1) launch(Kernel::attention_spans, spans, &p);
    } else {
      const device::RestoredAttentionParams with_codes = {
          p,
          cached_rows(restored->codes, tables.codes),
          restored->key_decoder.address(),
          restored->value_decoder.address(),
          settings.normalise_values,
          settings.rms_norm_eps};
      shape.shared_words += static_cast<std::uint32_t>(
          device::kAttentionWarps * device::restoring_words(restored->codes.head_dim));
      launch(Kernel::restored_attention, shape, &with_codes);
      if (p.spans > 1) launch(Kernel::restored_attention_spans, spans, &with_codes);
    }
    p.queries += count * width;
    p.out += count * width;
    p.positions += count;
    p.first_row += count;
  }
}

// The part of the room for sums of parts that is a sequence's own, so that attention of all may run
// at the same time.
std::int64_t CudaExecutor::share_of_partials() const {
  const auto num_sequences = static_cast<std::int64_t>(batch().segments.size());
  return num_partials_ / num_sequences / kPartialsTogether * kPartialsTogether;
}

// Chooses parts of what rows see so that blocks are enough, those of all sequences of a launch, as
// far as there is room for their sums: chunks only within a sequence's share of it. Few rows of one
// of several sequences are a part in any case, so that they are launched with others.
void CudaExecutor::choose_parts(device::AttentionParams& p, std::int64_t tiles) const {
  p.part_positions = 0;
  p.spans = 1;
  const std::int64_t part_size = p.rows * p.num_heads * (p.cache.head_dim + 2);
  const std::int64_t room = num_partials_ / part_size;
  const device::SeenBy<int> seen = device::seen_by_all(p, row_positions<int>(p));
  const auto together =
      static_cast<std::int64_t>(std::min(batch().segments.size(), most_together(p.cache)));
  std::int64_t before = 1;
  for (const int size : {device::kTensorSpan, device::kChunk}) {
    if (together * tiles * p.cache.num_kv_heads * before >= kEnoughBlocks) return;
    const int parts = device::chunks_of(seen, size).count;
    const bool is_only_part = batch().segments.size() > 1 && most_together(p.cache) > 1 &&
                              parts == 1 && size == device::kTensorSpan;
    if (parts <= before && !is_only_part) return;
    std::int64_t most = std::min(room, Driver::kMostBlocksY / tiles);
    if (size == device::kChunk) {
      most = std::min<std::int64_t>({most, device::kJoinedParts, share_of_partials() / part_size});
    }
    if (parts > most) return;
    p.part_positions = size;
    p.spans = std::min(most, parts_with_blocks(p, parts, size));
    before = parts;
  }
}

// Gives a sequence its share of the room for sums of parts, or all of it where that is too little.
// Those that were prepared are launched before room of theirs is used again.
void CudaExecutor::give_partials(device::AttentionParams& p, std::size_t segment) {
  const std::int64_t size = p.rows * p.num_heads * p.spans * (p.cache.head_dim + 2);
  const std::int64_t share = share_of_partials();
  const bool fits = size <= share;
  p.partials = partials_ + (fits ? static_cast<std::int64_t>(segment) * share : 0);
  p.room = fits ? share : num_partials_;
  for (const device::AttentionParams& other : sequences_) {
    if (other.partials >= p.partials + p.room || p.partials >= other.partials + other.room)
      continue;
    return attend_to_prepared_parts();
  }
}

void CudaExecutor::prepare_parts(const device::AttentionParams& p) {
  if (!sequences_.empty()) {
    const device::AttentionParams& other = sequences_.front();
    const bool is_alike = tensor_kernel(other.cache, true) == tensor_kernel(p.cache, true) &&
                          other.cache.num_kv_heads == p.cache.num_kv_heads &&
                          other.cache.head_dim == p.cache.head_dim;
    std::int64_t num_blocks = tiles_of(p, p.rows) * p.spans;
    for (const auto& before : sequences_)
      num_blocks += tiles_of(before, before.rows) * before.spans;
    if (!is_alike || sequences_.size() == most_together(p.cache) ||
        num_blocks > Driver::kMostBlocksY) {
      attend_to_prepared_parts();
    }
  }
  sequences_.push_back(p);
}

void CudaExecutor::attend_to_prepared_parts() {
  if (sequences_.empty()) return;
  const device::AttentionParams& first = sequences_.front();
  const Kernel kernel = tensor_kernel(first.cache, true);
  if (sequences_.size() == 1) {
    launch(kernel, tensor_shape(first, tiles_of(first, first.rows) * first.spans), &first);
    launch(Kernel::join_attention_parts, joining_shape(first, first.rows), &first);
    return sequences_.clear();
  }
  device::ManyAttentionsParams all = {};
  const bool are_alike = std::ranges::all_of(sequences_, [&](const device::AttentionParams& p) {
    return tiles_of(p, p.rows) == 1 && p.spans == first.spans;
  });
  all.parts = are_alike ? first.spans : 0;
  std::int64_t num_blocks = 0;
  for (const device::AttentionParams& p : sequences_) {
    all.sequences[all.count] = p;
    all.ends[all.count++] = num_blocks += tiles_of(p, p.rows) * p.spans;
  }
  launch(kernel_of_many(first.cache), tensor_shape(first, num_blocks), &all);
  std::int64_t num_rows = 0;
  for (std::int64_t i = 0; i < all.count; ++i) all.ends[i] = num_rows += all.sequences[i].rows;
  launch(Kernel::join_parts_of_many, joining_shape(first, num_rows), &all);
  sequences_.clear();
}

std::int64_t CudaExecutor::rows_at_once(const device::AttentionParams& p, std::int64_t rows) const {
  const std::int64_t room = num_partials_ / (p.spans * p.num_heads * (p.cache.head_dim + 2));
  return std::min({rows, room, Driver::kMostBlocksY / p.spans});
}

// Many rows keep a card busy without room for sums.
std::int64_t CudaExecutor::tensor_rows_at_once(device::AttentionParams p, std::int64_t rows) const {
  const std::int64_t group = p.num_heads / p.cache.num_kv_heads;
  const std::int64_t most = std::min(rows, Driver::kMostBlocksY * device::kTileQueries / group);
  if (tiles_of(p, rows) * p.cache.num_kv_heads >= kEnoughBlocks) return most;
  p.rows = rows;
  const device::SeenBy<int> seen = device::seen_by_all(p, row_positions<int>(p));
  const std::int64_t spans = device::chunks_of(seen, device::kTensorSpan).count;
  const std::int64_t room = num_partials_ / (spans * p.num_heads * (p.cache.head_dim + 2));
  return room > 0 ? std::min(most, room) : most;
}

std::optional<CudaExecutor::AttentionPlan> CudaExecutor::plan_attention(
    device::AttentionParams p, std::int64_t rows, bool on_tensor_cores) const {
  if (!on_tensor_cores) {
    p.spans = most_spans(p, rows, false);
    if (rows_at_once(p, rows) < rows) return std::nullopt;
  } else {
    if (tensor_rows_at_once(p, rows) < rows) return std::nullopt;
    choose_parts(p, tiles_of(p, rows));
  }
  return AttentionPlan{p.part_positions, p.spans};
}

void CudaExecutor::attend_on_tensor_cores(device::AttentionParams p,
                                          std::int64_t rows,
                                          std::size_t segment) {
  const std::int64_t most = tensor_rows_at_once(p, rows);
  const std::int64_t width = p.num_heads * p.cache.head_dim;
  for (std::int64_t begin = 0; begin < rows; begin += most) {
    p.rows = std::min(most, rows - begin);
    const std::int64_t tiles = tiles_of(p, p.rows);
    choose_parts(p, tiles);
    if (p.part_positions == 0) {
      launch(tensor_kernel(p.cache, false), tensor_shape(p, tiles), &p);
    } else {
      give_partials(p, segment);
      prepare_parts(p);
    }
    p.queries += p.rows * width;
    p.out += p.rows * width;
    p.positions += p.rows;
    p.first_row += p.rows;
  }
}

void CudaExecutor::attention(ConstRows queries,
                             const AttentionSettings& settings,
                             std::int64_t layer,
                             Rows out) {
  sequences_.clear();
  for (std::size_t s = 0; s < batch().segments.size(); ++s) {
    const AttentionInput input =
        attention_input(batch(), batch().segments[s], queries, settings, layer);
    const std::uint64_t bytes = attention_bytes(input);
    count_bytes(bytes);
    const LayerTables& tables = layer_tables(s, layer);
    const KeyDerivation& derivation = settings.derivation;
    const device::AttentionParams parameters = {
        .queries = input.queries.data.address(),
        .num_heads = queries.width / input.layer.rows.head_dim,
        .positions = positions_ + batch().segments[s].first_row,
        .first_row = 0,
        .block_rows = settings.bidirectional ? input.queries.count : 0,
        .window = input.layer.window,
        .kept = input.layer.kept,
        .scale = settings.scale,
        .part_positions = 0,
        .k_norm = derivation.k_norm.address(),
        .frequencies = derivation.inverse_frequencies.data.address(),
        .num_frequencies = derivation.inverse_frequencies.size,
        .cache = cached_rows(input.layer.rows, tables.rows),
        .rows = input.queries.count,
        .spans = 1,
        .partials = nullptr,
        .room = 0,
        .counters = attention_counters(input.layer.rows.num_kv_heads),
        .out = out.data.address() + batch().segments[s].first_row * out.width,
        .rounded = {}};
    const bool on_tensor_cores = settings.compute == Compute::kFast && !input.layer.is_restored &&
                                 device::fits_tensor_attention(parameters.cache);
    if (open_ != nullptr) {
      open_->attention_bytes += bytes;
      remember_attention({parameters, settings, queries, s, layer, on_tensor_cores, {}, 1});
    }
    if (on_tensor_cores) {
      attend_on_tensor_cores(parameters, input.queries.count, s);
      continue;
    }
    attend(parameters, input.queries.count,
           input.layer.is_restored ? &input.layer.restored : nullptr, tables, settings);
  }
  attend_to_prepared_parts();
}

}  // namespace kakeya::cuda
