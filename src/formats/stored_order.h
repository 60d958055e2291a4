// The rows of query and key heads as GGUF files of Llama store them, and in the order that
// everything else has: the pair (i, i + E / 2) of a head's E rows lies there as the neighbours (2
// i, 2 i + 1).
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor_view.h"

namespace kakeya {

// The row as it lies in the file, for `row` of heads of `head_rows`; an even number.
inline std::int64_t paired_row(std::int64_t row, std::int64_t head_rows) {
  const std::int64_t within = row % head_rows;
  const std::int64_t half = head_rows / 2;
  return row - within + (within < half ? 2 * within : 2 * (within - half) + 1);
}

// The other way round: the row for which `stored` in the file stands.
inline std::int64_t unpaired_row(std::int64_t stored, std::int64_t head_rows) {
  const std::int64_t within = stored % head_rows;
  return stored - within + within / 2 + (within % 2) * (head_rows / 2);
}

// Copies a tensor [H * E, K] or [H * E] of such a file in order. Rows keep their coding.
std::vector<std::byte> in_order(const TensorView& stored, std::int64_t head_rows);

}  // namespace kakeya
