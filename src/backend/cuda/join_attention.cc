#include "backend/cuda/join_attention.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "backend/cuda/device/joined_attention.h"
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
  const LaunchList& from = fused.launches;
  LaunchList to;
  std::vector<std::size_t> moved(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    moved[i] = to.size();
    const auto both = joined_at(from, i);
    if (!both) {
      to.add(from.kernel(i), from.shape(i), from.parameters(i));
      continue;
    }
    to.add(Kernel::joined_attention_part, both->shape, &both->params);
    moved[++i] = to.size() - 1;
  }
  for (std::size_t& place : fused.places) {
    if (place != SIZE_MAX) place = moved[place];
  }
  fused.launches = std::move(to);
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
