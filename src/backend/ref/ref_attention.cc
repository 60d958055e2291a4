// Rotary embedding, cache rows, attention and routing of the reference backend.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/ref/ref_executor.h"

namespace kakeya::ref {
namespace {

// The vector of kv head `head` in the row of `position`, of keys or values.
std::vector<float> load_vector(const std::byte* rows,
                               const KvRows& kv,
                               Position position,
                               std::int64_t head) {
  std::vector<float> x(static_cast<std::size_t>(kv.head_dim));
  decode_kv(kv.format, rows + kv.slot(position) * kv.slot_bytes() + head * kv.vector_bytes(),
            kv.head_dim, x.data());
  return x;
}

std::vector<float> load_key(const AttentionInput& input, Position position, std::int64_t head) {
  const KvRows& kv = input.kv;
  if (kv.keys != nullptr) return load_vector(kv.keys, kv, position, head);
  std::vector<float> key = load_vector(kv.values, kv, position, head);
  for (std::size_t e = 0; e < key.size(); ++e) key[e] *= input.derivation.k_norm[e];
  const std::size_t half = key.size() / 2;
  for (std::size_t i = 0; i < input.derivation.inverse_frequencies.size(); ++i) {
    const float angle = static_cast<float>(position) * input.derivation.inverse_frequencies[i];
    const auto cos = static_cast<float>(std::cos(static_cast<double>(angle)));
    const auto sin = static_cast<float>(std::sin(static_cast<double>(angle)));
    const float low = key[i];
    const float high = key[i + half];
    key[i] = low * cos - high * sin;
    key[i + half] = high * cos + low * sin;
  }
  return key;
}

void store_row(const float* from, const KvRows& kv, Position position, std::byte* rows) {
  for (std::int64_t head = 0; head < kv.num_kv_heads; ++head) {
    encode_kv(kv.format, from + head * kv.head_dim, kv.head_dim,
              rows + kv.slot(position) * kv.slot_bytes() + head * kv.vector_bytes());
  }
}

}  // namespace

void RefExecutor::make_rope_table(Position first,
                                  std::int64_t count,
                                  std::span<const float> inverse_frequencies,
                                  RopeTable table) {
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t i = 0; i < table.half; ++i) {
      const float angle =
          static_cast<float>(first + t) * inverse_frequencies[static_cast<std::size_t>(i)];
      table.cos[t * table.half + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      table.sin[t * table.half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

void RefExecutor::apply_rope(Rows x, RopeTable table) {
  const std::int64_t head_dim = 2 * table.half;
  for (std::int64_t t = 0; t < x.count; ++t) {
    for (std::int64_t head = 0; head < x.width / head_dim; ++head) {
      float* row = x.data + t * x.width + head * head_dim;
      for (std::int64_t i = 0; i < table.half; ++i) {
        const float cos = table.cos[t * table.half + i];
        const float sin = table.sin[t * table.half + i];
        const float low = row[i];
        const float high = row[i + table.half];
        row[i] = low * cos - high * sin;
        row[i + table.half] = high * cos + low * sin;
      }
    }
  }
}

void RefExecutor::store_kv(ConstRows keys, ConstRows values, Position first, const KvRows& kv) {
  for (std::int64_t t = 0; t < values.count; ++t) {
    if (kv.keys != nullptr) store_row(keys.data + t * keys.width, kv, first + t, kv.keys);
    store_row(values.data + t * values.width, kv, first + t, kv.values);
  }
}

void RefExecutor::attention(const AttentionInput& input, Rows out) {
  const KvRows& kv = input.kv;
  const std::int64_t head_dim = kv.head_dim;
  const std::int64_t num_heads = input.queries.width / head_dim;
  const std::int64_t group = num_heads / kv.num_kv_heads;
  std::vector<Position> positions;
  std::vector<double> scores;
  std::vector<double> sums(static_cast<std::size_t>(head_dim));
  count_bytes(attention_bytes(input));
  for (std::int64_t t = 0; t < input.queries.count; ++t) {
    const AttentionInput::Span seen = input.seen(input.first_position + t);
    positions.clear();
    for (Position p = seen.sink_begin; p < seen.sink_end; ++p) positions.push_back(p);
    for (Position p = seen.begin; p < seen.end; ++p) positions.push_back(p);
    for (std::int64_t head = 0; head < num_heads; ++head) {
      const float* q = input.queries.data + t * input.queries.width + head * head_dim;
      const std::int64_t kv_head = head / group;
      scores.clear();
      double largest = -INFINITY;
      for (const Position p : positions) {
        const std::vector<float> key = load_key(input, p, kv_head);
        double score = 0.0;
        for (std::size_t e = 0; e < key.size(); ++e) score += static_cast<double>(q[e]) * key[e];
        scores.push_back(score * input.scale);
        largest = std::max(largest, scores.back());
      }
      double total = 0.0;
      std::fill(sums.begin(), sums.end(), 0.0);
      for (std::size_t i = 0; i < positions.size(); ++i) {
        const double probability = std::exp(scores[i] - largest);
        total += probability;
        const std::vector<float> value = load_vector(kv.values, kv, positions[i], kv_head);
        for (std::size_t e = 0; e < value.size(); ++e) sums[e] += probability * value[e];
      }
      float* row = out.data + t * out.width + head * head_dim;
      for (std::int64_t e = 0; e < head_dim; ++e) {
        row[e] = static_cast<float>(sums[static_cast<std::size_t>(e)] / total);
      }
    }
  }
}

void RefExecutor::route(ConstRows logits, const float* per_expert_scale, Routing routing) {
  const std::int64_t num_experts = logits.width;
  for (std::int64_t t = 0; t < logits.count; ++t) {
    const float* row = logits.data + t * num_experts;
    std::int32_t* chosen = routing.experts + t * routing.top_k;
    float* weights = routing.weights + t * routing.top_k;
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
      weights[r] = static_cast<float>(p * per_expert_scale[chosen[r]]);
    }
  }
}

}  // namespace kakeya::ref
