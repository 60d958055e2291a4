#include "backend/backend.h"

#include <algorithm>

namespace kakeya {

std::uint64_t Executor::attention_bytes(const AttentionInput& input) {
  const Position end = std::max(input.first_position + input.queries.count, input.block_end);
  const Position begin =
      input.window == 0 ? 0 : std::max<Position>(0, input.first_position - input.window + 1);
  const std::int64_t elements = (end - begin) * input.kv.num_kv_heads * input.kv.head_dim;
  return 2 * static_cast<std::uint64_t>(elements) * dtype_bytes(input.kv.dtype);
}

}  // namespace kakeya
