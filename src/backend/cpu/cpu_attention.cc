// Rotary embedding, cache rows and attention of the CPU executor.
#include <algorithm>
#include <cmath>
#include <ranges>

#include "backend/cpu/cpu_executor.h"
#include "base/check.h"

namespace kakeya::cpu {
namespace {

constexpr double kSineNanoseconds = 20.0;
constexpr double kCodeNanoseconds = 20.0;  // of coding a number

Slots slots_of(const DevicePointer<std::byte>* blocks, const KvRows& rows) {
  return {.blocks = host_blocks(blocks),
          .block_slots = rows.block_slots,
          .capacity = rows.capacity,
          .slot_bytes = rows.slot_bytes()};
}

Restored restored_of(const AttentionInput& input) {
  const RestoredRows& rows = input.layer.restored;
  KAKEYA_DCHECK(rows.codes.head_dim <= kMaxRank);
  return {.key_codes = slots_of(rows.codes.keys, rows.codes),
          .value_codes = slots_of(rows.codes.values, rows.codes),
          .code_format = rows.codes.format,
          .rank = rows.codes.head_dim,
          .key_decoder = rows.key_decoder.address(),
          .value_decoder = rows.value_decoder.address(),
          .decoder_stride = input.layer.rows.num_kv_heads * input.layer.rows.head_dim,
          .normalise_values = input.settings.normalise_values,
          .eps = input.settings.rms_norm_eps};
}

// The attention in the leaves' form; `restored` and `coded` are referred to.
Attention attention_of(const AttentionInput& input,
                       Rows out,
                       const Restored& restored,
                       const Coded& coded) {
  const KvRows& kv = input.layer.rows;
  const KeyDerivation& derivation = input.settings.derivation;
  return {.queries = host_row(input.queries, 0),
          .out = host_row(out, 0),
          .stride = input.queries.width,
          .head_dim = kv.head_dim,
          .heads_per_kv = input.queries.width / kv.head_dim / kv.num_kv_heads,
          .first_position = input.first_position,
          .fast = input.settings.compute == Compute::kFast,
          .window = input.layer.window,
          .block_end = input.block_end,
          .scale = input.settings.scale,
          .kept = input.layer.kept,
          .keys = host_blocks(kv.keys),
          .values = host_blocks(kv.values),
          .block_slots = kv.block_slots,
          .format = kv.format,
          .capacity = kv.capacity,
          .sink = kv.sink,
          .vector_bytes = kv.vector_bytes(),
          .slot_bytes = kv.slot_bytes(),
          .k_norm = derivation.k_norm.address(),
          .inverse_frequencies = derivation.inverse_frequencies.data.address(),
          .rotated_pairs = derivation.inverse_frequencies.size,
          .restored = input.layer.is_restored ? &restored : nullptr,
          .coded = input.layer.is_coded ? &coded : nullptr};
}

double attention_flops(const AttentionInput& input) {
  const SeenKeys span = input.seen(input.first_position);
  const Index rows = input.queries.count;
  const Index seen = span.sink_end - span.sink_begin + span.end - span.begin + rows;
  const double flops =
      4.0 * static_cast<double>(seen * rows) * static_cast<double>(input.queries.width);
  const KvRows& kv = input.layer.rows;
  // A coded number takes some ten operations, and a query's product and sum.
  if (input.layer.is_coded) {
    return flops + static_cast<double>(span.begin - span.sink_end) *
                       static_cast<double>(20 * kv.num_kv_heads * kv.head_dim +
                                           4 * rows * input.queries.width);
  }
  if (!input.layer.is_restored) return flops;
  return flops + 4.0 * static_cast<double>((span.begin - span.sink_end) *
                                           input.layer.restored.codes.head_dim * kv.num_kv_heads *
                                           kv.head_dim);
}

}  // namespace

void CpuExecutor::make_rope_table(ConstVector inverse_frequencies, RopeTable table) {
  const std::span<const Position> positions = batch().positions;
  for_rows(batch().rows(), 2 * kSineNanoseconds * static_cast<double>(table.half),
           [&](Index begin, Index end) {
             for (Index t = begin; t < end; ++t) {
               const auto position = static_cast<float>(positions[static_cast<std::size_t>(t)]);
               float* cos = table.cos.address() + t * table.half;
               float* sin = table.sin.address() + t * table.half;
               for (Index i = 0; i < table.half; ++i) {
                 const float frequency = inverse_frequencies.data.address()[i];
                 // Partial rotary embeddings have a long tail of zeros.
                 if (frequency == 0.0F) {
                   cos[i] = 1.0F;
                   sin[i] = 0.0F;
                   continue;
                 }
                 const auto angle = static_cast<double>(position * frequency);
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
        kernels_.rotate(host_row(x, t) + begin, table.cos.address() + t * table.half,
                        table.sin.address() + t * table.half, table.half);
      }
    }
  });
}

void CpuExecutor::store_rows(ConstRows keys,
                             ConstRows values,
                             const Segment& segment,
                             const KvRows& kv) {
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
  const Position first = batch().first_position(segment);
  for (Index t = 0; t < segment.rows; ++t) {
    const Index row = segment.first_row + t;
    const Index slot = kv.slot(first + t);
    if (kv.keys != nullptr) store(host_row(keys, row), kv.row(kv.keys, slot).address());
    store(host_row(values, row), kv.row(kv.values, slot).address());
  }
}

void CpuExecutor::store_kv(ConstRows keys, ConstRows values, std::int64_t layer) {
  for (const Segment& segment : batch().segments) {
    store_rows(keys, values, segment, segment.layers[static_cast<std::size_t>(layer)].rows);
  }
}

void CpuExecutor::store_codes(ConstRows keys, ConstRows values, std::int64_t layer) {
  for (const Segment& segment : batch().segments) {
    const CodedRows& coded = segment.layers[static_cast<std::size_t>(layer)].coded;
    if (coded.key_codes == nullptr) continue;
    const Position first = batch().first_position(segment);
    const double nanoseconds =
        kCodeNanoseconds * static_cast<double>(keys.width * (coded.value_codes != nullptr ? 2 : 1));
    for_rows(segment.rows, nanoseconds, [&](Index begin, Index end) {
      for (Index t = begin; t < end; ++t) {
        store_coded_row(coded, first + t, host_row(keys, segment.first_row + t),
                        host_row(values, segment.first_row + t));
      }
    });
  }
}

Coded CpuExecutor::coded_of(const AttentionInput& input) {
  const CodedRows& rows = input.layer.coded;
  const ConstVector& frequencies = input.settings.derivation.inverse_frequencies;
  const Index pairs = layout_.turned_pairs;
  KAKEYA_CHECK(input.layer.rows.head_dim <= 2 * pairs);
  auto* turns = scratch_at<float>(layout_.turns);
  const std::span<const float> turned_by(frequencies.data.address(),
                                         static_cast<std::size_t>(frequencies.size));
  if (!std::ranges::equal(turned_by, turned_by_)) {
    turned_by_.assign(turned_by.begin(), turned_by.end());
    for (Index offset = 0; offset < kKeyChunk; ++offset) {
      float* cos = turns + offset * 2 * pairs;
      for (Index i = 0; i < pairs; ++i) {
        const double angle = i < frequencies.size ? static_cast<double>(offset) *
                                                        turned_by_[static_cast<std::size_t>(i)]
                                                  : 0.0;
        cos[i] = static_cast<float>(std::cos(angle));
        cos[pairs + i] = static_cast<float>(std::sin(angle));
      }
    }
  }
  Coded coded = {.keys = slots_of(rows.keys.values, rows.keys),
                 .values = {},
                 .key_bytes = rows.keys.code_bytes,
                 .value_bytes = rows.values.code_bytes,
                 .key_codes = rows.key_views,
                 .value_codes = rows.value_views,
                 .turns = turns,
                 .turned_pairs = pairs};
  if (rows.value_views != nullptr) coded.values = slots_of(rows.values.values, rows.values);
  return coded;
}

// How the attention of one segment is cut into items.
CpuExecutor::SegmentItems CpuExecutor::cut(const Attention& attention, Index rows) const {
  const Index group = attention.heads_per_kv;
  const Index kv_heads = attention.stride / attention.head_dim / group;
  // Heads that share keys go together, unless threads would be left without work; keys that are
  // restored or decoded are too dear to make twice.
  const auto sequences = static_cast<Index>(batch().segments.size());
  const Index parts =
      rows == 1 && attention.restored == nullptr && attention.coded == nullptr
          ? std::clamp<Index>(pool_.num_threads() / (kv_heads * sequences), 1, group)
          : 1;
  const Index max_queries = kernels_.max_queries(attention);
  SegmentItems items;
  items.rows = rows;
  items.heads = std::min(max_queries, (group + parts - 1) / parts);
  items.splits = (group + items.heads - 1) / items.heads;
  items.rows_per_item = std::max<Index>(1, max_queries / items.heads);
  items.blocks = (rows + items.rows_per_item - 1) / items.rows_per_item;
  items.count = kv_heads * items.splits * items.blocks;
  return items;
}

void CpuExecutor::attend_item(const Attention& attention,
                              const SegmentItems& items,
                              Index item) const {
  const Index group = attention.heads_per_kv;
  const Index block = item % items.blocks;
  const Index split = item / items.blocks % items.splits;
  const Index kv_head = item / items.blocks / items.splits;
  const Index first_head = split * items.heads;
  const Index first_row = block * items.rows_per_item;
  kernels_.attend(attention, {.kv_head = kv_head,
                              .first_head = kv_head * group + first_head,
                              .heads = std::min(items.heads, group - first_head),
                              .first_row = first_row,
                              .rows = std::min(items.rows_per_item, items.rows - first_row)});
}

void CpuExecutor::attention(ConstRows queries,
                            const AttentionSettings& settings,
                            std::int64_t layer,
                            Rows out) {
  segments_.clear();
  segments_.reserve(batch().segments.size());  // there already, if the plan said so many
  Index count = 0;
  double flops = 0.0;
  for (const Segment& segment : batch().segments) {
    const AttentionInput input = attention_input(batch(), segment, queries, settings, layer);
    SegmentAttention& part = segments_.emplace_back();
    if (input.layer.is_restored) part.restored = restored_of(input);
    const Rows part_out = rows_from(out, segment.first_row, segment.rows);
    if (input.layer.is_coded) part.coded = coded_of(input);
    part.attention = attention_of(input, part_out, part.restored, part.coded);
    part.items = cut(part.attention, segment.rows);
    part.first_item = count;
    count += part.items.count;
    flops += attention_flops(input);
    count_bytes(attention_bytes(input));
  }
  for_items(count, flops / kernels_.exact_gflops, [&](Index item) {
    const auto behind =
        std::upper_bound(segments_.begin(), segments_.end(), item,
                         [](Index i, const SegmentAttention& part) { return i < part.first_item; });
    const SegmentAttention& part = *std::prev(behind);
    attend_item(part.attention, part.items, item - part.first_item);
  });
}

}  // namespace kakeya::cpu
