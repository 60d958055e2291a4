// Rotary embedding, cache rows and attention of the CPU executor.
#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_executor.h"
#include "base/check.h"

namespace kakeya::cpu {
namespace {

constexpr double kSineNanoseconds = 20.0;

Slots slots_of(std::byte* const* blocks, const KvRows& rows) {
  return {.blocks = blocks,
          .block_slots = rows.block_slots,
          .capacity = rows.capacity,
          .slot_bytes = rows.slot_bytes()};
}

Restored restored_of(const RestoredRows& rows, const KvRows& kv) {
  KAKEYA_DCHECK(rows.codes.head_dim <= kMaxRank);
  return {.key_codes = slots_of(rows.codes.keys, rows.codes),
          .value_codes = slots_of(rows.codes.values, rows.codes),
          .code_format = rows.codes.format,
          .rank = rows.codes.head_dim,
          .key_decoder = rows.key_decoder,
          .value_decoder = rows.value_decoder,
          .decoder_stride = kv.num_kv_heads * kv.head_dim,
          .normalise_values = rows.normalise_values,
          .eps = rows.rms_norm_eps,
          .blend = rows.blend,
          .own_keys = slots_of(rows.own.keys, rows.own),
          .own_values = slots_of(rows.own.values, rows.own)};
}

}  // namespace

void CpuExecutor::make_rope_table(Position first,
                                  std::int64_t count,
                                  std::span<const float> inverse_frequencies,
                                  RopeTable table) {
  for_rows(count, 2 * kSineNanoseconds * static_cast<double>(table.half),
           [&](Index begin, Index end) {
             for (Index t = begin; t < end; ++t) {
               float* cos = table.cos + t * table.half;
               float* sin = table.sin + t * table.half;
               for (Index i = 0; i < table.half; ++i) {
                 const float frequency = inverse_frequencies[static_cast<std::size_t>(i)];
                 // Partial rotary embeddings have a long tail of zeros.
                 if (frequency == 0.0F) {
                   cos[i] = 1.0F;
                   sin[i] = 0.0F;
                   continue;
                 }
                 const auto angle = static_cast<double>(static_cast<float>(first + t) * frequency);
                 cos[i] = static_cast<float>(std::cos(angle));
                 sin[i] = static_cast<float>(std::sin(angle));
               }
             }
           });
}

void CpuExecutor::apply_rope(Rows x, RopeTable table) {
  const Index head_dim = 2 * table.half;
  for_rows(x.count, static_cast<double>(x.width), [&](Index first, Index last) {
    for (Index t = first; t < last; ++t) {
      for (Index begin = 0; begin < x.width; begin += head_dim) {
        kernels_.rotate(x.data + t * x.width + begin, table.cos + t * table.half,
                        table.sin + t * table.half, table.half);
      }
    }
  });
}

void CpuExecutor::store_kv(ConstRows keys, ConstRows values, Position first, const KvRows& kv) {
  const auto store = [&](const float* from, std::byte* to) {
    if (kv.format == KvFormat::kBf16) {
      kernels_.to_bf16(from, kv.num_kv_heads * kv.head_dim, to);
      return;
    }
    for (Index head = 0; head < kv.num_kv_heads; ++head) {
      encode_kv(kv.format, from + head * kv.head_dim, kv.head_dim, to + head * kv.vector_bytes());
    }
  };
  // Rows in order on one thread: more rows than slots would let two threads meet in a slot.
  for (Index t = 0; t < values.count; ++t) {
    const Index slot = kv.slot(first + t);
    if (kv.keys != nullptr) store(keys.data + t * keys.width, kv.row(kv.keys, slot));
    store(values.data + t * values.width, kv.row(kv.values, slot));
  }
}

void CpuExecutor::attention(const AttentionInput& input, Rows out) {
  const KvRows& kv = input.kv;
  const Index rows = input.queries.count;
  if (rows == 0) return;
  const Index heads = input.queries.width / kv.head_dim;
  const Index group = heads / kv.num_kv_heads;
  const Restored restored =
      input.restored == nullptr ? Restored{} : restored_of(*input.restored, kv);
  const Attention attention = {
      .queries = input.queries.data,
      .out = out.data,
      .stride = input.queries.width,
      .head_dim = kv.head_dim,
      .heads_per_kv = group,
      .first_position = input.first_position,
      .fast = input.compute == Compute::kFast,
      .window = input.window,
      .block_end = input.block_end,
      .scale = input.scale,
      .kept = input.kept,
      .keys = kv.keys,
      .values = kv.values,
      .block_slots = kv.block_slots,
      .format = kv.format,
      .capacity = kv.capacity,
      .sink = kv.sink,
      .vector_bytes = kv.vector_bytes(),
      .slot_bytes = kv.slot_bytes(),
      .k_norm = input.derivation.k_norm,
      .inverse_frequencies = input.derivation.inverse_frequencies.data(),
      .rotated_pairs = static_cast<Index>(input.derivation.inverse_frequencies.size()),
      .restored = input.restored == nullptr ? nullptr : &restored};
  // Heads that share keys go together, unless threads would be left without work; restored keys are
  // too dear to make twice.
  const Index parts = rows == 1 && input.restored == nullptr
                          ? std::clamp<Index>(pool_.num_threads() / kv.num_kv_heads, 1, group)
                          : 1;
  const Index max_queries = kernels_.max_queries(attention);
  const Index heads_per_item = std::min(max_queries, (group + parts - 1) / parts);
  const Index splits = (group + heads_per_item - 1) / heads_per_item;
  const Index rows_per_item = std::max<Index>(1, max_queries / heads_per_item);
  const Index blocks = (rows + rows_per_item - 1) / rows_per_item;

  count_bytes(attention_bytes(input));
  const AttentionInput::Span span = input.seen(input.first_position);
  const Index seen = span.sink_end - span.sink_begin + span.end - span.begin + rows;
  double flops = 4.0 * static_cast<double>(seen * rows) * static_cast<double>(input.queries.width);
  if (input.restored != nullptr) {
    flops += 4.0 * static_cast<double>((span.begin - span.sink_end) * restored.rank *
                                       restored.decoder_stride);
  }
  for_items(kv.num_kv_heads * splits * blocks, flops / kernels_.exact_gflops, [&](Index item) {
    const Index block = item % blocks;
    const Index split = item / blocks % splits;
    const Index kv_head = item / blocks / splits;
    const Index first_head = split * heads_per_item;
    const Index first_row = block * rows_per_item;
    kernels_.attend(attention, {.kv_head = kv_head,
                                .first_head = kv_head * group + first_head,
                                .heads = std::min(heads_per_item, group - first_head),
                                .first_row = first_row,
                                .rows = std::min(rows_per_item, rows - first_row)});
  });
}

}  // namespace kakeya::cpu
