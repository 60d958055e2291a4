// Rotary embedding, rows of the cache and attention as launches.
#include <algorithm>

#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/device/attention.h"
#include "backend/cuda/device/rows.h"
#include "backend/cuda/device/store.h"
#include "base/check.h"
#include "base/status.h"

namespace kakeya::cuda {
namespace {

constexpr std::int64_t kNoTable = -1;

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
    case KvFormat::kInt4:
      return device::RowFormat::kInt4;
    case KvFormat::kRotatedInt4:
      return device::RowFormat::kRotatedInt4;
    case KvFormat::kD4:
      return device::RowFormat::kD4;
    case KvFormat::kE8:
      break;
  }
  return device::RowFormat::kE8;
}

}  // namespace

Status check_rows(bool restored, std::string_view backend) {
  if (!restored) return {};
  return error(StatusCode::kUnimplemented, "backend {} has no kernels for restored rows", backend);
}

void CudaExecutor::begin(const Batch& batch) {
  Executor::begin(batch);
  tables_.clear();
  layers_.clear();
  first_layers_.clear();
  for (const Segment& segment : batch.segments) {
    first_layers_.push_back(layers_.size());
    for (const KvLayer& layer : segment.layers) {
      if (const Status known = check_rows(layer.is_restored, driver_.name()); !known) {
        fail(known.error());
      }
      const std::int64_t keys = add_table(layer.rows.keys, layer.rows);
      layers_.push_back({keys, add_table(layer.rows.values, layer.rows)});
    }
  }
  upload_tables();
}

std::int64_t CudaExecutor::add_table(const DevicePointer<std::byte>* blocks, const KvRows& rows) {
  if (blocks == nullptr || rows.block_slots == 0) return kNoTable;
  const auto at = static_cast<std::int64_t>(tables_.size());
  const std::int64_t count = (rows.capacity + rows.block_slots - 1) / rows.block_slots;
  for (std::int64_t block = 0; block < count; ++block) {
    tables_.push_back(reinterpret_cast<std::uintptr_t>(blocks[block].address()));
  }
  return at;
}

// Most passes find the tables as they were.
void CudaExecutor::upload_tables() {
  if (tables_ == uploaded_tables_) return;
  const std::uint64_t bytes = tables_.size() * sizeof(std::uint64_t);
  if (bytes > device_tables_.size()) {
    auto grown = budget_.allocate(MemoryClass::kActivations, 2 * bytes, space());
    if (!grown) return fail(grown.error());
    device_tables_ = std::move(grown).value();
  }
  upload(space(), std::span<const std::uint64_t>(tables_), device_tables_.device<std::uint64_t>());
  uploaded_tables_ = tables_;
}

device::CachedRows CudaExecutor::cached_rows(std::size_t segment, std::int64_t layer) const {
  const auto index = static_cast<std::size_t>(layer);
  const KvRows& rows = batch().segments[segment].layers[index].rows;
  const LayerTables& tables = layers_[first_layers_[segment] + index];
  const auto* const all = device_tables_.as<std::uint64_t>();
  return {tables.keys == kNoTable ? nullptr : all + tables.keys,
          tables.values == kNoTable ? nullptr : all + tables.values,
          rows.block_slots,
          rows.capacity,
          rows.sink,
          rows.num_kv_heads,
          rows.head_dim,
          rows.vector_bytes(),
          row_format(rows.format)};
}

void CudaExecutor::make_rope_table(ConstVector inverse_frequencies, RopeTable table) {
  const std::span<const Position> positions = batch().positions;
  KAKEYA_CHECK(batch().rows() <= plan_.max_rows);
  static_assert(sizeof(Position) == sizeof(*positions_));
  upload(space(), positions, DevicePointer<Position>(positions_));
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

void CudaExecutor::store_rows(const float* rows,
                              const Segment& segment,
                              const std::uint64_t* blocks,
                              const device::CachedRows& cache) {
  const std::int64_t width = cache.num_kv_heads * cache.head_dim;
  const device::StoreParams parameters = {rows + segment.first_row * width, blocks,
                                          batch().first_position(segment), cache};
  const std::uint32_t words = device::is_rotated(cache.format) ? device::kStoreWords : 0;
  launch(Kernel::store, {cache.num_kv_heads, segment.rows, dev::kWarp, words}, &parameters);
}

void CudaExecutor::store_kv(ConstRows keys, ConstRows values, std::int64_t layer) {
  for (std::size_t s = 0; s < batch().segments.size(); ++s) {
    const device::CachedRows cache = cached_rows(s, layer);
    const Segment& segment = batch().segments[s];
    if (cache.keys != nullptr) store_rows(keys.data.address(), segment, cache.keys, cache);
    store_rows(values.data.address(), segment, cache.values, cache);
  }
}

// Rows of sequences that restore some are refused when the pass begins.
void CudaExecutor::store_own_kv(ConstRows /*keys*/, ConstRows /*values*/, std::int64_t /*layer*/) {}

void CudaExecutor::attention(ConstRows queries,
                             const AttentionSettings& settings,
                             std::int64_t layer,
                             Rows out) {
  for (std::size_t s = 0; s < batch().segments.size(); ++s) {
    const AttentionInput input =
        attention_input(batch(), batch().segments[s], queries, settings, layer);
    count_bytes(attention_bytes(input));
    const KeyDerivation& derivation = settings.derivation;
    const std::int64_t num_heads = queries.width / input.layer.rows.head_dim;
    const device::AttentionParams parameters = {
        input.queries.data.address(),
        num_heads,
        input.first_position,
        input.block_end,
        input.layer.window,
        input.layer.kept,
        settings.scale,
        derivation.k_norm.address(),
        derivation.inverse_frequencies.data.address(),
        derivation.inverse_frequencies.size,
        cached_rows(s, layer),
        out.data.address() + batch().segments[s].first_row * out.width};
    launch(Kernel::attention,
           {num_heads, input.queries.count, device::kChunk, device::kAttentionWords}, &parameters);
  }
}

}  // namespace kakeya::cuda
