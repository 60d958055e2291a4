// Searching tensors for NaN and infinity.
#pragma once

#include <cstdint>
#include <optional>

#include "tensor/tensor_view.h"

namespace kakeya {

// The first element of rows [first, first + count), counted as they lie in memory, that is NaN or
// infinite, as its index in the whole tensor; in block formats the index of its block, in affine
// ones that of its group. All integers are finite.
std::optional<std::int64_t> find_non_finite(const TensorView& tensor,
                                            std::int64_t first,
                                            std::int64_t count);

// Searches all rows.
std::optional<std::int64_t> find_non_finite(const TensorView& tensor);

}  // namespace kakeya
