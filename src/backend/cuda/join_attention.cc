#include "backend/cuda/join_attention.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "backend/cuda/device/joined_attention.h"
#include "backend/cuda/join_pairs.h"
#include "backend/cuda/launch_shapes.h"

namespace kakeya::cuda {
namespace {

// The heads that a block joins one after the other, at most: more take longer than a launch whose
// blocks do so side by side.
constexpr std::int64_t kMostJoinedHeads = 2;

struct JoinedAttention {
  device::AttentionParams params;
  LaunchShape shape;
};

bool are_equal(device::AttentionParams a, const device::AttentionParams& b) {
  a.rounded = b.rounded;
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

// Launch `i` and the next one as one, if they are parts and their sum.
std::optional<JoinedAttention> joined_at(const LaunchList& launches, std::size_t i) {
  if (i + 1 >= launches.size() || launches.kernel(i) != Kernel::tensor_attention_part ||
      launches.kernel(i + 1) != Kernel::join_attention_parts) {
    return std::nullopt;
  }
  const auto& parts = *static_cast<const device::AttentionParams*>(launches.parameters(i));
  const auto& p = *static_cast<const device::AttentionParams*>(launches.parameters(i + 1));
  const bool fits = p.counters != nullptr && are_equal(parts, p) &&
                    p.rows * p.num_heads <= kMostJoinedHeads * p.cache.num_kv_heads &&
                    p.spans <= device::kJoinedParts &&
                    p.cache.head_dim <= device::kAttentionThreads;
  if (!fits) return std::nullopt;
  LaunchShape shape = launches.shape(i);
  shape.shared_words = std::max(shape.shared_words, launches.shape(i + 1).shared_words);
  return JoinedAttention{p, shape};
}

}  // namespace

void join_attention(FusedLaunches& fused) {
  join_pairs(fused, Kernel::joined_attention_part, joined_at);
}

bool renew_joined_attention(LaunchList& fused,
                            std::size_t place,
                            const LaunchList& launches,
                            std::size_t i) {
  const bool is_sum = launches.kernel(i) == Kernel::join_attention_parts;
  if (is_sum && i == 0) return false;
  auto both = joined_at(launches, is_sum ? i - 1 : i);
  if (!both) return false;
  both->params.rounded =
      static_cast<const device::AttentionParams*>(fused.parameters(place))->rounded;
  const bool rounds = both->params.rounded.codes != nullptr;
  if (rounds && !device::makes_rows_of(both->params, both->params.rounded)) return false;
  fused.replace(place, both->shape, &both->params);
  return true;
}

}  // namespace kakeya::cuda
