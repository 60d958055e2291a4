// Quantised weights as the integers that they are, for products with integer activations: in runs
// of 32 columns a code q, unsigned, stands for
//
//   scale * (q - zero) + minimum,
//
// with one scale and minimum for `group` columns. What is decoded from a format
// (quantized_format.h, affine_format.h) is this number, but for the rounding of the sum.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "tensor/tensor_view.h"

namespace kakeya {

inline constexpr std::int64_t kIntegerBlock = 32;
inline constexpr std::int64_t kSmallestIntegerGroup = 16;
inline constexpr std::int64_t kScaleFactorGroup = 256;  // columns that share factors of scales

// The properties that all integers of a tensor share.
struct IntegerFormat {
  int bits = 8;              // of a code: 4, 5, 6 or 8, whichever holds it
  int zero = 0;              // 0, 4, 8, 16, 32 or 128
  std::int64_t group = 32;   // 16, 32 or 64
  bool has_minimum = false;  // else all are 0
  // F16, BF16 or F32: holds all scales and minimums exactly. I8: they are such numbers times
  // factors in F16 that kScaleFactorGroup columns share; rows are whole such groups.
  DType scale_type = DType::kF32;
  // The codes that there are, if a format looks up 16 of them; a static table.
  const std::array<std::uint8_t, 16>* levels = nullptr;

  friend bool operator==(const IntegerFormat&, const IntegerFormat&) = default;
};

// Nothing for weights that are no integers (F32, F16, BF16) and for NVFP4, whose scales are floats
// for 16 columns of a block of 64.
std::optional<IntegerFormat> integer_format(const TensorView& weight);

// 32 columns of a row.
struct IntegerBlock {
  std::uint8_t codes[kIntegerBlock];
  // For each run of kSmallestIntegerGroup columns.
  float scales[2];
  float minimums[2];
  // Codes and factors, whose products the numbers above are with scale_type I8; undefined
  // otherwise.
  std::int8_t scale_codes[2];
  std::int8_t minimum_codes[2];
  float scale_factor;
  float minimum_factor;
};

// Blocks [first, first + out.size()) of a row; rows are counted as they lie in memory. The weight
// has an integer_format().
void read_integer_blocks(const TensorView& weight,
                         std::int64_t row,
                         std::int64_t first,
                         std::span<IntegerBlock> out);

}  // namespace kakeya
