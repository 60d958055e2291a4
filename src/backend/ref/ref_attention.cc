// Rotary embedding, cache rows, attention and routing of the reference backend.
#include <algorithm>
#include <cmath>
#include <compare>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "backend/host_rows.h"
#include "backend/ref/ref_executor.h"

namespace kakeya::ref {
namespace {

// The vector of kv head `head` in the row of `position`, of keys or values.
std::vector<float> load_vector(const DevicePointer<std::byte>* blocks,
                               const KvRows& kv,
                               Position position,
                               std::int64_t head) {
  std::vector<float> x(static_cast<std::size_t>(kv.head_dim));
  decode_kv(kv.format, kv.row(blocks, kv.slot(position)).address() + head * kv.vector_bytes(),
            kv.head_dim, x.data());
  return x;
}

// RoPE of one key. The angle is rounded to f32, as published implementations round it, but for
// coded rows, whose positions are split in two (cpu/units/coded.h): it is the product there.
void turn(const AttentionInput& input,
          Position position,
          std::vector<float>& key,
          bool is_coded = false) {
  const std::size_t half = key.size() / 2;
  const ConstVector& frequencies = input.settings.derivation.inverse_frequencies;
  for (std::size_t i = 0; i < static_cast<std::size_t>(frequencies.size); ++i) {
    const float rounded = static_cast<float>(position) * frequencies.data.address()[i];
    const double exact = static_cast<double>(position) * frequencies.data.address()[i];
    const double angle = is_coded ? exact : static_cast<double>(rounded);
    const auto cos = static_cast<float>(std::cos(angle));
    const auto sin = static_cast<float>(std::sin(angle));
    const float low = key[i];
    const float high = key[i + half];
    key[i] = low * cos - high * sin;
    key[i + half] = high * cos + low * sin;
  }
}

void norm_key(const AttentionInput& input, std::vector<float>& vector) {
  for (std::size_t e = 0; e < vector.size(); ++e)
    vector[e] *= input.settings.derivation.k_norm.address()[e];
}

// Makes the key of a stored value.
void derive(const AttentionInput& input, Position position, std::vector<float>& vector) {
  norm_key(input, vector);
  turn(input, position, vector);
}

std::vector<float> load_key(const AttentionInput& input, Position position, std::int64_t head) {
  const KvRows& kv = input.layer.rows;
  if (kv.keys != nullptr) return load_vector(kv.keys, kv, position, head);
  std::vector<float> key = load_vector(kv.values, kv, position, head);
  derive(input, position, key);
  return key;
}

// The row that k_proj or v_proj would have given for one KV head, about.
std::vector<float> restore_raw(const AttentionInput& input,
                               DevicePointer<const float> decoder,
                               const DevicePointer<std::byte>* codes,
                               Position position,
                               std::int64_t head) {
  const RestoredRows& restored = input.layer.restored;
  const std::vector<float> code = load_vector(codes, restored.codes, position, 0);
  const auto head_dim = static_cast<std::size_t>(input.layer.rows.head_dim);
  const std::size_t stride = static_cast<std::size_t>(input.layer.rows.num_kv_heads) * head_dim;
  std::vector<float> raw(head_dim);
  for (std::size_t e = 0; e < head_dim; ++e) {
    double sum = 0.0;
    for (std::size_t r = 0; r < code.size(); ++r) {
      sum += static_cast<double>(code[r]) *
             decoder.address()[r * stride + static_cast<std::size_t>(head) * head_dim + e];
    }
    raw[e] = static_cast<float>(sum);
  }
  return raw;
}

// Restored rows are as exact as stored ones where those are bf16.
void round_as_stored(KvFormat format, std::vector<float>& x) {
  if (format != KvFormat::kBf16) return;
  for (float& value : x) value = to_float(to_bfloat16(value));
}

// How a row that a query sees is kept.
enum class Kept : std::uint8_t { kStored, kRestored, kCoded };

// A row of the cache that a query sees.
struct SeenRow {
  Position position = 0;
  Kept kept = Kept::kStored;
  auto operator<=>(const SeenRow&) const = default;
};

std::vector<SeenRow> seen_rows(const AttentionInput& input, Position query) {
  const SeenKeys seen = input.seen(query);
  std::vector<SeenRow> rows;
  for (Position p = seen.sink_begin; p < seen.sink_end; ++p) rows.push_back({p});
  if (input.layer.is_restored || input.layer.is_coded) {
    const Kept kept = input.layer.is_coded ? Kept::kCoded : Kept::kRestored;
    for (Position p = seen.sink_end; p < seen.begin; ++p) rows.push_back({p, kept});
  }
  for (Position p = seen.begin; p < seen.end; ++p) rows.push_back({p});
  return rows;
}

// Keys or values of one kv head, each made once for all queries that see it.
class SeenVectors {
 public:
  explicit SeenVectors(std::function<std::vector<float>(const SeenRow&)> make)
      : make_(std::move(make)) {}

  const std::vector<float>& at(const SeenRow& row) {
    const auto [found, is_new] = made_.try_emplace(row);
    if (is_new) found->second = make_(row);
    return found->second;
  }

 private:
  std::function<std::vector<float>(const SeenRow&)> make_;
  std::map<SeenRow, std::vector<float>> made_;
};

// out [E] = softmax(scale * q [E] . keys) values, over `rows`.
void attend_to(const std::vector<SeenRow>& rows,
               const float* q,
               float scale,
               SeenVectors& keys,
               SeenVectors& values,
               float* out) {
  std::vector<double> scores;
  double largest = -INFINITY;
  for (const SeenRow& row : rows) {
    const std::vector<float>& key = keys.at(row);
    double score = 0.0;
    for (std::size_t e = 0; e < key.size(); ++e) score += static_cast<double>(q[e]) * key[e];
    scores.push_back(score * scale);
    largest = std::max(largest, scores.back());
  }
  double total = 0.0;
  std::vector<double> sums;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double probability = std::exp(scores[i] - largest);
    total += probability;
    const std::vector<float>& value = values.at(rows[i]);
    sums.resize(value.size());
    for (std::size_t e = 0; e < value.size(); ++e) sums[e] += probability * value[e];
  }
  for (std::size_t e = 0; e < sums.size(); ++e) out[e] = static_cast<float>(sums[e] / total);
}

// A vector in a calibrated code, as it was before rotation.
std::vector<float> read_code(const KvRows& rows,
                             const CalibratedCode* codes,
                             Position position,
                             std::int64_t head) {
  std::vector<float> x(static_cast<std::size_t>(rows.head_dim));
  codes[head].decode(rows.row(rows.values, rows.slot(position)).address() + head * rows.code_bytes,
                     x.data());
  return x;
}

std::vector<float> coded_value(const AttentionInput& input, Position position, std::int64_t head) {
  const CodedRows& coded = input.layer.coded;
  const bool one_vector = coded.value_codes == nullptr;
  return read_code(one_vector ? coded.keys : coded.values,
                   one_vector ? coded.key_codes : coded.value_codes, position, head);
}

std::vector<float> coded_key(const AttentionInput& input, Position position, std::int64_t head) {
  const CodedRows& coded = input.layer.coded;
  std::vector<float> key = read_code(coded.keys, coded.key_codes, position, head);
  if (coded.value_codes == nullptr) norm_key(input, key);
  turn(input, position, key, /*is_coded=*/true);
  return key;
}

void store_row(const float* from,
               const KvRows& kv,
               Position position,
               const DevicePointer<std::byte>* blocks) {
  std::byte* row = kv.row(blocks, kv.slot(position)).address();
  for (std::int64_t head = 0; head < kv.num_kv_heads; ++head) {
    encode_kv(kv.format, from + head * kv.head_dim, kv.head_dim, row + head * kv.vector_bytes());
  }
}

}  // namespace

void RefExecutor::make_rope_table(ConstVector inverse_frequencies, RopeTable table) {
  for (std::int64_t t = 0; t < batch().rows(); ++t) {
    const auto position = static_cast<float>(batch().positions[static_cast<std::size_t>(t)]);
    for (std::int64_t i = 0; i < table.half; ++i) {
      const float angle = position * inverse_frequencies.data.address()[i];
      table.cos.address()[t * table.half + i] =
          static_cast<float>(std::cos(static_cast<double>(angle)));
      table.sin.address()[t * table.half + i] =
          static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

void RefExecutor::apply_rope(Rows x, RopeTable table) {
  const std::int64_t head_dim = 2 * table.half;
  for (std::int64_t t = 0; t < x.count; ++t) {
    for (std::int64_t head = 0; head < x.width / head_dim; ++head) {
      float* row = host_row(x, t) + head * head_dim;
      for (std::int64_t i = 0; i < table.half; ++i) {
        const float cos = table.cos.address()[t * table.half + i];
        const float sin = table.sin.address()[t * table.half + i];
        const float low = row[i];
        const float high = row[i + table.half];
        row[i] = low * cos - high * sin;
        row[i + table.half] = high * cos + low * sin;
      }
    }
  }
}

void RefExecutor::store_rows(ConstRows keys,
                             ConstRows values,
                             const Segment& segment,
                             const KvRows& kv) {
  for (std::int64_t t = segment.first_row; t < segment.first_row + segment.rows; ++t) {
    const Position position = batch().positions[static_cast<std::size_t>(t)];
    if (kv.keys != nullptr) store_row(host_row(keys, t), kv, position, kv.keys);
    store_row(host_row(values, t), kv, position, kv.values);
  }
}

void RefExecutor::store_kv(ConstRows keys, ConstRows values, std::int64_t layer) {
  for (const Segment& segment : batch().segments) {
    store_rows(keys, values, segment, segment.layers[static_cast<std::size_t>(layer)].rows);
  }
}

void RefExecutor::store_codes(ConstRows keys, ConstRows values, std::int64_t layer) {
  for (const Segment& segment : batch().segments) {
    const CodedRows& coded = segment.layers[static_cast<std::size_t>(layer)].coded;
    if (coded.key_codes == nullptr) continue;
    for (std::int64_t t = segment.first_row; t < segment.first_row + segment.rows; ++t) {
      const Position position = batch().positions[static_cast<std::size_t>(t)];
      store_coded_row(coded, position, host_row(keys, t), host_row(values, t));
    }
  }
}

std::vector<float> RefExecutor::restore_key(const AttentionInput& input,
                                            Position position,
                                            std::int64_t head) {
  const RestoredRows& restored = input.layer.restored;
  std::vector<float> key =
      restore_raw(input, restored.key_decoder, restored.codes.keys, position, head);
  const Rows row = device_rows({key.data(), 1, input.layer.rows.head_dim});
  if (input.layer.rows.keys == nullptr) {
    rms_norm(row, nullptr, input.settings.rms_norm_eps, row);
    round_as_stored(input.layer.rows.format, key);
    derive(input, position, key);
  } else {
    const DevicePointer<const float> k_norm = input.settings.derivation.k_norm;
    if (k_norm) rms_norm(row, k_norm, input.settings.rms_norm_eps, row);
    turn(input, position, key);
    round_as_stored(input.layer.rows.format, key);
  }
  return key;
}

std::vector<float> RefExecutor::restore_value(const AttentionInput& input,
                                              Position position,
                                              std::int64_t head) {
  const RestoredRows& restored = input.layer.restored;
  std::vector<float> value =
      restore_raw(input, restored.value_decoder, restored.codes.values, position, head);
  const Rows row = device_rows({value.data(), 1, input.layer.rows.head_dim});
  if (input.settings.normalise_values) rms_norm(row, nullptr, input.settings.rms_norm_eps, row);
  round_as_stored(input.layer.rows.format, value);
  return value;
}

void RefExecutor::attention(ConstRows queries,
                            const AttentionSettings& settings,
                            std::int64_t layer,
                            Rows out) {
  for (const Segment& segment : batch().segments) {
    attend(attention_input(batch(), segment, queries, settings, layer),
           rows_from(out, segment.first_row, segment.rows));
  }
}

void RefExecutor::attend(const AttentionInput& input, Rows out) {
  const KvRows& kv = input.layer.rows;
  const std::int64_t num_heads = input.queries.width / kv.head_dim;
  const std::int64_t group = num_heads / kv.num_kv_heads;
  count_bytes(attention_bytes(input));
  for (std::int64_t kv_head = 0; kv_head < kv.num_kv_heads; ++kv_head) {
    SeenVectors keys([&](const SeenRow& row) {
      if (row.kept == Kept::kCoded) return coded_key(input, row.position, kv_head);
      return row.kept == Kept::kRestored ? restore_key(input, row.position, kv_head)
                                         : load_key(input, row.position, kv_head);
    });
    SeenVectors values([&](const SeenRow& row) {
      if (row.kept == Kept::kCoded) return coded_value(input, row.position, kv_head);
      return row.kept == Kept::kRestored ? restore_value(input, row.position, kv_head)
                                         : load_vector(kv.values, kv, row.position, kv_head);
    });
    for (std::int64_t t = 0; t < input.queries.count; ++t) {
      const std::vector<SeenRow> rows = seen_rows(input, input.first_position + t);
      for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        attend_to(rows, host_row(input.queries, t) + head * kv.head_dim, input.settings.scale, keys,
                  values, host_row(out, t) + head * kv.head_dim);
      }
    }
  }
}

void RefExecutor::route(ConstRows logits,
                        DevicePointer<const float> per_expert_scale,
                        Routing routing) {
  const std::int64_t num_experts = logits.width;
  for (std::int64_t t = 0; t < logits.count; ++t) {
    const float* row = host_row(logits, t);
    std::int32_t* chosen = routing.experts.address() + t * routing.top_k;
    float* weights = routing.weights.address() + t * routing.top_k;
    for (std::int64_t r = 0; r < routing.top_k; ++r) {
      std::int32_t best = -1;
      for (std::int32_t e = 0; e < num_experts; ++e) {
        if (std::find(chosen, chosen + r, e) != chosen + r) continue;
        if (best < 0 || row[e] > row[best]) best = e;  // ties: the lower id stays
      }
      chosen[r] = best;
    }
    double total = 0.0;
    for (std::int64_t r = 0; r < routing.top_k; ++r) {
      total += std::exp(static_cast<double>(row[chosen[r]]) - row[chosen[0]]);
    }
    for (std::int64_t r = 0; r < routing.top_k; ++r) {
      const double p = std::exp(static_cast<double>(row[chosen[r]]) - row[chosen[0]]) / total;
      weights[r] = static_cast<float>(p * per_expert_scale.address()[chosen[r]]);
    }
  }
}

}  // namespace kakeya::ref
