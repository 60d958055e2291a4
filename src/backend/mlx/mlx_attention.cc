// Rotary embedding, cache rows and attention on MLX.
//
// Attention walks positions in tiles that begin at multiples of kTile, whatever is stored where and
// whoever else is in the pass: what a row does not see counts for zero, so its sums have the same
// terms in the same order alone and beside others.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/mlx/mlx_executor.h"
#include "backend/mlx/mlx_rows.h"

namespace kakeya::mlx {
namespace {

constexpr Position kTile = 64;
// The positions that one group of threads of a kernel looks at; a multiple of kTile.
constexpr Position kSpan = 256;

mx::Shape block_shape(const KvRows& kv) {
  const auto item = static_cast<std::int64_t>(mx::size_of(dtype_of(kv.format)));
  return {to_int(kv.block_slots), to_int(kv.slot_bytes() / item)};
}

// A fresh array of these floats, to be filled by the host.
mx::array host_array(std::int64_t rows, std::int64_t width) {
  return mx::array(mx::allocator::malloc(static_cast<std::size_t>(rows * width) * sizeof(float)),
                   mx::Shape{to_int(rows), to_int(width)}, mx::float32);
}

mx::array host_zeros(int rows, int width, mx::Dtype dtype) {
  mx::array zeros(mx::allocator::malloc(static_cast<std::size_t>(rows) *
                                        static_cast<std::size_t>(width) * mx::size_of(dtype)),
                  mx::Shape{rows, width}, dtype);
  std::memset(zeros.data<std::byte>(), 0, zeros.nbytes());
  return zeros;
}

// cos and sin of position * frequencies [n], for pairs [half] of `rows` positions.
void fill_angles(std::span<const float> frequencies,
                 Position position,
                 std::int64_t half,
                 float* cos,
                 float* sin) {
  std::fill_n(cos, half, 1.0F);
  std::fill_n(sin, half, 0.0F);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const auto angle = static_cast<double>(static_cast<float>(position) * frequencies[i]);
    cos[i] = static_cast<float>(std::cos(angle));
    sin[i] = static_cast<float>(std::sin(angle));
  }
}

}  // namespace

// On the host, in double: nothing has to be run for it, and it is what the reference has.
void MlxExecutor::make_rope_table(ConstVector inverse_frequencies, RopeTable table) {
  const auto guard = start();
  const auto size = static_cast<std::uint64_t>(inverse_frequencies.size);
  space_.to_pages(inverse_frequencies.data.address(), size * sizeof(float));
  const std::span<const float> frequencies(inverse_frequencies.data.address(), size);
  const std::int64_t rows = batch().rows();
  mx::array cos = host_array(rows, table.half);
  mx::array sin = host_array(rows, table.half);
  for (std::int64_t t = 0; t < rows; ++t) {
    fill_angles(frequencies, batch().positions[static_cast<std::size_t>(t)], table.half,
                cos.data<float>() + t * table.half, sin.data<float>() + t * table.half);
  }
  space_.write(table.cos.address(), cos);
  space_.write(table.sin.address(), sin);
}

void MlxExecutor::apply_rope(Rows x, RopeTable table) {
  const auto guard = start();
  const mx::array cos = read(table.cos, x.count, table.half);
  const mx::array sin = read(table.sin, x.count, table.half);
  write(x, row_operations_->rotation(read_as_written(x), cos, sin, table.half));
}

// Rows [N, K * E] of f32 as they are stored, [N, items of a slot].
mx::array MlxExecutor::stored(const mx::array& rows, const KvRows& kv) {
  // Numbers that are stored one by one.
  if (dtype_of(kv.format) != mx::uint8) return encode_rows(kv.format, rows, s_);
  const int count = rows.shape(0);
  const mx::array x = mx::reshape(rows, {count, to_int(kv.num_kv_heads), to_int(kv.head_dim)}, s_);
  return mx::reshape(encode_rows(kv.format, x, s_), {count, -1}, s_);
}

void MlxExecutor::store_rows(const mx::array& rows,
                             const Segment& segment,
                             const KvRows& kv,
                             const DevicePointer<std::byte>* blocks) {
  const mx::Shape shape = block_shape(kv);
  const mx::array coded = stored(rows, kv);
  // Runs of neighbouring slots of one block.
  for (std::int64_t done = 0; done < segment.rows;) {
    const Position first = batch().first_position(segment) + done;
    const std::int64_t slot = kv.slot(first);
    std::int64_t run = 1;
    while (done + run < segment.rows && kv.slot(first + run) == slot + run &&
           (slot + run) % kv.block_slots != 0) {
      ++run;
    }
    const int in_block = to_int(slot % kv.block_slots);
    const int from = to_int(segment.first_row + done);
    const mx::array update = mx::slice(
        coded, mx::Shape{from, 0}, mx::Shape{from + to_int(run), shape[1]}, mx::Shape{1, 1}, s_);
    std::byte* const block = blocks[slot / kv.block_slots].address();
    space_.write_kept(block, mx::slice_update(space_.read(block, shape, dtype_of(kv.format)),
                                              update, mx::Shape{in_block, 0},
                                              mx::Shape{in_block + to_int(run), shape[1]}, s_));
    done += run;
  }
}

void MlxExecutor::store_kv(ConstRows keys, ConstRows values, std::int64_t layer) {
  const auto guard = start();
  for (const Segment& segment : batch().segments) {
    const KvRows& kv = segment.layers[static_cast<std::size_t>(layer)].rows;
    if (kv.keys != nullptr) store_rows(read(keys), segment, kv, kv.keys);
    store_rows(read(values), segment, kv, kv.values);
  }
}

MlxExecutor::Walk MlxExecutor::walk(const AttentionInput& input) {
  Walk walk;
  const auto first = input.seen(input.first_position);
  const auto last = input.seen(input.first_position + input.queries.count - 1);
  walk.sinks = {first.sink_begin, std::max(first.sink_end, last.sink_end)};
  walk.rows = {first.begin, std::max(first.end, last.end)};
  const auto touches = [](Position tile, const std::pair<Position, Position>& span) {
    return std::max(tile, span.first) < std::min(tile + kTile, span.second);
  };
  for (Position tile = first.sink_begin / kTile * kTile; tile < walk.rows.second; tile += kTile) {
    if (touches(tile, walk.sinks) || touches(tile, walk.rows)) walk.tiles.push_back(tile);
  }
  return walk;
}

// The walk over positions that some query has evicted; empty where rows are not restored.
MlxExecutor::Walk MlxExecutor::restored_walk(const AttentionInput& input) {
  Walk walk;
  if (!input.layer.is_restored) return walk;
  walk.rows = {input.seen(input.first_position).sink_end,
               input.seen(input.first_position + input.queries.count - 1).begin};
  if (walk.rows.first >= walk.rows.second) return walk;
  for (Position tile = walk.rows.first / kTile * kTile; tile < walk.rows.second; tile += kTile) {
    walk.tiles.push_back(tile);
  }
  return walk;
}

// The rows of the walk's positions as they are stored, [1, N, K, bytes or numbers of a vector];
// zeros for those that no query sees, whose bytes are zeros in all formats.
mx::array MlxExecutor::gathered_rows(const Walk& walk,
                                     const KvRows& kv,
                                     const DevicePointer<std::byte>* blocks) {
  const mx::Shape shape = block_shape(kv);
  const auto is_seen = [&](Position p) {
    return (p >= walk.sinks.first && p < walk.sinks.second) ||
           (p >= walk.rows.first && p < walk.rows.second);
  };
  std::vector<mx::array> pieces;
  for (const Position tile : walk.tiles) {
    for (Position p = tile; p < tile + kTile;) {
      const bool seen = is_seen(p);
      const std::int64_t slot = seen ? kv.slot(p) : 0;
      Position end = p + 1;
      while (end < tile + kTile && is_seen(end) == seen &&
             (!seen ||
              (kv.slot(end) == slot + (end - p) && (slot + (end - p)) % kv.block_slots != 0))) {
        ++end;
      }
      if (seen) {
        const mx::array block =
            space_.read(blocks[slot / kv.block_slots].address(), shape, dtype_of(kv.format));
        const int begin = to_int(slot % kv.block_slots);
        pieces.push_back(mx::slice(block, mx::Shape{begin, 0},
                                   mx::Shape{begin + to_int(end - p), shape[1]}, mx::Shape{1, 1},
                                   s_));
      } else {
        pieces.push_back(host_zeros(to_int(end - p), shape[1], dtype_of(kv.format)));
      }
      p = end;
    }
  }
  const mx::array rows = pieces.size() == 1 ? pieces.front() : mx::concatenate(pieces, 0, s_);
  return mx::reshape(rows, mx::Shape{1, rows.shape(0), to_int(kv.num_kv_heads), -1}, s_);
}

// The rows of the walk's positions decoded, [1, N, K, E] in f32.
mx::array MlxExecutor::decoded_rows(const Walk& walk,
                                    const KvRows& kv,
                                    const DevicePointer<std::byte>* blocks) {
  return decode_rows(kv.format, gathered_rows(walk, kv, blocks), s_);
}

MlxExecutor::Angles MlxExecutor::angles(const ConstVector& frequencies,
                                        std::int64_t half,
                                        const Walk& walk) {
  const auto size = static_cast<std::size_t>(frequencies.size);
  const float* const address = frequencies.data.address();
  if (size > 0) space_.to_pages(address, size * sizeof(float));
  AngleTiles& known = angles_[{address, half}];
  // Another model's may have come to lie there.
  if (!std::equal(known.frequencies.begin(), known.frequencies.end(), address, address + size)) {
    known.tiles.clear();
    known.frequencies.assign(address, address + size);
  }
  std::vector<mx::array> cos;
  std::vector<mx::array> sin;
  for (const Position tile : walk.tiles) {
    auto it = known.tiles.find(tile);
    if (it == known.tiles.end()) {
      Angles made{host_array(kTile, half), host_array(kTile, half)};
      for (Position p = 0; p < kTile; ++p) {
        fill_angles(known.frequencies, tile + p, half, made.cos.data<float>() + p * half,
                    made.sin.data<float>() + p * half);
      }
      it = known.tiles.emplace(tile, made).first;
    }
    cos.push_back(it->second.cos);
    sin.push_back(it->second.sin);
  }
  return {mx::concatenate(cos, 0, s_), mx::concatenate(sin, 0, s_)};
}

// The arrays that make keys of the values at the walk's positions.
DerivedKeys MlxExecutor::derivation(const AttentionInput& input, const Walk& walk) {
  const KeyDerivation& derivation = input.settings.derivation;
  const int head_dim = to_int(input.layer.rows.head_dim);
  const Angles turned = angles(derivation.inverse_frequencies, head_dim / 2, walk);
  return {space_.read(derivation.k_norm.address(), mx::Shape{head_dim}, mx::float32), turned.cos,
          turned.sin};
}

// The rows that k_proj or v_proj would have given at the walk's positions, about: [1, N, K, E].
mx::array MlxExecutor::restored_raw(const AttentionInput& input,
                                    const Walk& walk,
                                    const DevicePointer<std::byte>* blocks,
                                    DevicePointer<const float> decoder) {
  const KvRows& kv = input.layer.rows;
  const KvRows& codes = input.layer.restored.codes;
  const int width = to_int(kv.num_kv_heads * kv.head_dim);
  const mx::array raw = mx::matmul(
      decoded_rows(walk, codes, blocks),
      space_.read(decoder.address(), mx::Shape{to_int(codes.head_dim), width}, mx::float32), s_);
  return mx::reshape(raw, {1, -1, to_int(kv.num_kv_heads), to_int(kv.head_dim)}, s_);
}

// Keys and values as RestoredRows says.
MlxExecutor::KeysAndValues MlxExecutor::restored_rows(const AttentionInput& input,
                                                      const Walk& walk) {
  const KvRows& kv = input.layer.rows;
  const RestoredRows& restored = input.layer.restored;
  const int head_dim = to_int(kv.head_dim);
  const auto normed = [&](const mx::array& x, const std::optional<mx::array>& weight) {
    return row_operations_->rms_norm(x, weight, head_dim, input.settings.rms_norm_eps);
  };
  const auto as_stored = [&](const mx::array& x) {
    if (kv.format != KvFormat::kBf16) return x;
    return mx::astype(mx::astype(x, mx::bfloat16, s_), mx::float32, s_);
  };
  const mx::array raw = restored_raw(input, walk, restored.codes.keys, restored.key_decoder);
  const auto made_keys = [&] {
    const KeyDerivation& derived = input.settings.derivation;
    if (!derived.k_norm) {
      const Angles turned = angles(derived.inverse_frequencies, head_dim / 2, walk);
      return as_stored(row_operations_->rotation(raw, turned.cos, turned.sin, head_dim / 2));
    }
    const DerivedKeys made = derivation(input, walk);
    if (kv.keys == nullptr) {
      return row_operations_->keys_of(as_stored(normed(raw, std::nullopt)), made);
    }
    return as_stored(
        row_operations_->rotation(normed(raw, made.k_norm), made.cos, made.sin, head_dim / 2));
  };
  const mx::array keys = made_keys();
  const mx::array values = restored_raw(input, walk, restored.codes.values, restored.value_decoder);
  return {keys, as_stored(input.settings.normalise_values ? normed(values, std::nullopt) : values)};
}

// The keys and values at the walk's positions; keys are made where they are not stored.
MlxExecutor::KeysAndValues MlxExecutor::stored_rows(const AttentionInput& input, const Walk& walk) {
  const KvRows& kv = input.layer.rows;
  const mx::array values = decoded_rows(walk, kv, kv.values);
  if (kv.keys == nullptr)
    return {row_operations_->keys_of(values, derivation(input, walk)), values};
  return {decoded_rows(walk, kv, kv.keys), values};
}

// [a, b, width], whatever their shape, as [b, a, width]; one of one is no more than another shape.
mx::array MlxExecutor::swapped(const mx::array& x, int a, int b, int width) {
  if (a == 1 || b == 1) return x;
  return mx::transpose(mx::reshape(x, mx::Shape{a, b, width}, s_), {1, 0, 2}, s_);
}

// The mask of the walks' positions that each query sees, [T * group, N]: the same for all heads of
// a group.
mx::array MlxExecutor::mask(const AttentionInput& input,
                            const Walk& stored,
                            const Walk& restored,
                            int group) {
  const auto count = static_cast<std::size_t>(input.queries.count);
  const std::size_t keys = (stored.tiles.size() + restored.tiles.size()) * kTile;
  const std::size_t heads = static_cast<std::size_t>(group);
  mx::array mask(mx::allocator::malloc(count * heads * keys),
                 mx::Shape{to_int(input.queries.count) * group, static_cast<int>(keys)}, mx::bool_);
  auto* to = mask.data<bool>();
  for (std::size_t t = 0; t < count; ++t) {
    const bool* const row = to;
    const SeenKeys span = input.seen(input.first_position + static_cast<Position>(t));
    for (const Position tile : stored.tiles) {
      for (Position p = tile; p < tile + kTile; ++p) {
        *to++ = (p >= span.sink_begin && p < span.sink_end) || (p >= span.begin && p < span.end);
      }
    }
    for (const Position tile : restored.tiles) {
      for (Position p = tile; p < tile + kTile; ++p) *to++ = p >= span.sink_end && p < span.begin;
    }
    for (std::size_t head = 1; head < heads; ++head) to = std::copy_n(row, keys, to);
  }
  return mask;
}

// Rows that are there alone stay as they are stored, where that is as numbers.
MlxExecutor::Seen MlxExecutor::seen_rows(const AttentionInput& input,
                                         const Walk& stored,
                                         const Walk& restored) {
  const KvRows& kv = input.layer.rows;
  // The keys of other rows must be made in the same way whether or not a row has rows to restore
  // yet.
  if (!input.layer.is_restored) {
    const auto numbers = [&](const DevicePointer<std::byte>* blocks) {
      const mx::array rows = gathered_rows(stored, kv, blocks);
      return dtype_of(kv.format) == mx::uint8 ? decode_rows(kv.format, rows, s_) : rows;
    };
    if (kv.keys != nullptr) return {numbers(kv.keys), numbers(kv.values)};
    return {derivation(input, stored), numbers(kv.values)};
  }
  // Restored rows stand behind the stored ones, so that both are in the same sums for every query.
  const KeysAndValues rows = stored_rows(input, stored);
  if (restored.tiles.empty()) return {rows.keys, rows.values};
  const KeysAndValues others = restored_rows(input, restored);
  return {mx::concatenate({rows.keys, others.keys}, 1, s_),
          mx::concatenate({rows.values, others.values}, 1, s_)};
}

// Where spans begin, and the end: of positions from one multiple of kSpan to the next.
std::vector<std::int32_t> MlxExecutor::spans_of(const Walk& stored, const Walk& restored) {
  std::vector<std::int32_t> begins;
  std::int32_t rows = 0;
  for (const Walk* walk : {&stored, &restored}) {
    Position span = -1;
    for (const Position tile : walk->tiles) {
      if (tile / kSpan != span) begins.push_back(rows);
      span = tile / kSpan;
      rows += static_cast<std::int32_t>(kTile);
    }
  }
  begins.push_back(rows);
  return begins;
}

// [T, width], of one sequence.
mx::array MlxExecutor::attend(const AttentionInput& input) {
  const KvRows& kv = input.layer.rows;
  const Walk stored = walk(input);
  const Walk restored = restored_walk(input);
  // The heads that read one head of keys stand below one another: [1, K, T * G, E].
  const int count = to_int(input.queries.count);
  const int num_kv_heads = to_int(kv.num_kv_heads);
  const int width = to_int(input.queries.width);
  const int group = width / to_int(kv.num_kv_heads * kv.head_dim);
  const mx::array queries =
      mx::reshape(swapped(read(input.queries), count, num_kv_heads, width / num_kv_heads),
                  mx::Shape{1, num_kv_heads, count * group, to_int(kv.head_dim)}, s_);
  const Seen rows = seen_rows(input, stored, restored);
  const mx::array result = row_operations_->attention(
      {queries, rows.keys, rows.values, mask(input, stored, restored, group),
       spans_of(stored, restored), input.settings.scale, input.queries.count});
  return mx::reshape(swapped(result, num_kv_heads, count, width / num_kv_heads),
                     mx::Shape{count, width}, s_);
}

void MlxExecutor::attention(ConstRows queries,
                            const AttentionSettings& settings,
                            std::int64_t layer,
                            Rows out) {
  const auto guard = start();
  std::vector<mx::array> outputs;
  for (const Segment& segment : batch().segments) {
    const AttentionInput input = attention_input(batch(), segment, queries, settings, layer);
    count_bytes(attention_bytes(input));
    outputs.push_back(attend(input));
  }
  write(out, outputs.size() == 1 ? outputs.front() : mx::concatenate(outputs, 0, s_));
}

}  // namespace kakeya::mlx
