// Rotary embedding, cache rows, attention and routing of the reference backend.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/ref/ref_executor.h"

namespace kakeya::ref {
namespace {

// Element e of kv head `head` in the row of `position`.
float load_kv(
    const std::byte* rows, const KvRows& kv, Position position, std::int64_t head, std::int64_t e) {
  const std::int64_t slot = position % kv.capacity;
  const auto index = static_cast<std::size_t>((slot * kv.num_kv_heads + head) * kv.head_dim + e);
  if (kv.dtype == DType::kF32) {
    float value = 0.0F;
    std::memcpy(&value, rows + index * sizeof(value), sizeof(value));
    return value;
  }
  BFloat16 value{};
  std::memcpy(&value, rows + index * sizeof(value), sizeof(value));
  return to_float(value);
}

void store_row(const float* from, const KvRows& kv, Position position, std::byte* rows) {
  const std::int64_t width = kv.num_kv_heads * kv.head_dim;
  const std::int64_t slot = position % kv.capacity;
  for (std::int64_t i = 0; i < width; ++i) {
    const auto index = static_cast<std::size_t>(slot * width + i);
    if (kv.dtype == DType::kF32) {
      std::memcpy(rows + index * sizeof(float), from + i, sizeof(float));
    } else {
      const BFloat16 value = to_bfloat16(from[i]);
      std::memcpy(rows + index * sizeof(value), &value, sizeof(value));
    }
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
  for (std::int64_t t = 0; t < keys.count; ++t) {
    store_row(keys.data + t * keys.width, kv, first + t, kv.keys);
    store_row(values.data + t * values.width, kv, first + t, kv.values);
  }
}

void RefExecutor::attention(const AttentionInput& input, Rows out) {
  const KvRows& kv = input.kv;
  const std::int64_t head_dim = kv.head_dim;
  const std::int64_t num_heads = input.queries.width / head_dim;
  const std::int64_t group = num_heads / kv.num_kv_heads;
  std::vector<double> scores;
  std::vector<double> sums(static_cast<std::size_t>(head_dim));
  count_bytes(attention_bytes(input));
  for (std::int64_t t = 0; t < input.queries.count; ++t) {
    const Position position = input.first_position + t;
    const Position begin =
        input.window == 0 ? 0 : std::max<Position>(0, position - input.window + 1);
    const Position last = std::max(position, input.block_end - 1);
    for (std::int64_t head = 0; head < num_heads; ++head) {
      const float* q = input.queries.data + t * input.queries.width + head * head_dim;
      const std::int64_t kv_head = head / group;
      scores.clear();
      double largest = -INFINITY;
      for (Position p = begin; p <= last; ++p) {
        double score = 0.0;
        for (std::int64_t e = 0; e < head_dim; ++e) {
          score += static_cast<double>(q[e]) * load_kv(kv.keys, kv, p, kv_head, e);
        }
        scores.push_back(score * input.scale);
        largest = std::max(largest, scores.back());
      }
      double total = 0.0;
      std::fill(sums.begin(), sums.end(), 0.0);
      for (Position p = begin; p <= last; ++p) {
        const double probability = std::exp(scores[static_cast<std::size_t>(p - begin)] - largest);
        total += probability;
        for (std::int64_t e = 0; e < head_dim; ++e) {
          sums[static_cast<std::size_t>(e)] += probability * load_kv(kv.values, kv, p, kv_head, e);
        }
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
