// Coding of f32 numbers in the block formats of GGUF (quantized_format.h says what their bytes
// mean). Two families:
//
//   Q4_0, Q4_1, Q5_0, Q5_1, Q8_0   one scale, or scale and minimum, for 32 elements, from the
//                                  block's extremes. The bytes are those of gguf-py's quantisers
//                                  (tests/data/quantized), but for blocks whose scale is so small
//                                  that its inverse overflows: they become zeros here.
//   Q4_K, Q5_K, Q6_K               scales of scales for 256 elements, found by a search for the
//                                  smallest squared error. The error is the definition; the bytes
//                                  may change between versions.
//
// With an importance, a factor for each column, all of them search for the smallest sum of
// importance * squared error, and never leave a larger one than without.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/quantized_format.h"

namespace kakeya {

// True if quantize_row() makes this format.
bool can_quantize(QuantizedFormat format);

// No halves hold a larger scale; with elements up to this no scale of any format overflows.
inline constexpr float kLargestBlockElement = 65504.0F;

// Codes a row of `columns` elements, whole blocks, into quantized_row_bytes() bytes. All elements
// are finite and at most kLargestBlockElement in magnitude. `importance`: nullptr, or a finite
// factor for each column that is not negative. The format is one that can_quantize().
void quantize_row(QuantizedFormat format,
                  const float* x,
                  std::int64_t columns,
                  const float* importance,
                  std::byte* out);

}  // namespace kakeya
