// MLX's affine quantisation, in plain loops: what its bytes mean and how they are made. This is the
// definition; faster readers are compared with it.
//
// A row is cut into groups of consecutive elements. A group has a scale and a bias, and a code q,
// 0 ... 2^bits - 1, stands for q * scale + bias; the scale may be negative. The codes of a row are
// one string of bits, lowest first: code i begins at bit i * bits, and bit b is bit b % 8 of byte
// b / 8. Scales and biases are stored in the type of the weights.
//
// Measured against MLX 0.32 on CPUs (tests/data/quantized):
//   * quantize_affine_row(), without an importance, gives MLX's codes, scales and biases, bit for
//   bit.
//   * dequantize_affine_row() computes in f32, product and sum rounded each, and gives the bits of
//     `mlx.core.dequantize` with scales and biases in f32. With 16-bit scales the product is exact,
//     so that only the sum is rounded.
//   * Given scales in bf16 or f16, MLX computes in that type and rounds the product and the sum to
//     it: its values differ from these by up to a rounding of each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace kakeya {

struct AffineFormat {
  int bits = 4;         // 2, 3, 4, 5, 6 or 8
  int group_size = 64;  // 32, 64 or 128

  friend bool operator==(const AffineFormat&, const AffineFormat&) = default;
};

// True if MLX has such a format. All functions below take only those.
bool affine_format_exists(AffineFormat format);

// Bytes of a row's codes, whole 32-bit words; `columns` is a multiple of the group size.
std::int64_t affine_code_bytes(AffineFormat format, std::int64_t columns);

// One row as stored. The caller has checked the sizes; nothing needs to be aligned.
struct AffineRow {
  const std::byte* codes;   // affine_code_bytes()
  const std::byte* scales;  // one for each group
  const std::byte* biases;  // one for each group
  DType dtype;              // of scales and biases: F32, F16 or BF16
};

// Where a row is stored, in the same way.
struct MutableAffineRow {
  std::byte* codes;
  std::byte* scales;
  std::byte* biases;
  DType dtype;
};

// `columns`, a multiple of 8, codes of `bits` bits, one to a byte.
void unpack_affine_codes(int bits, const std::byte* codes, std::int64_t columns, std::uint8_t* out);

// `columns`, a multiple of the group size, elements to f32. Any bits are fine: scales and biases
// that are not finite give values that are not finite.
void dequantize_affine_row(AffineFormat format,
                           const AffineRow& row,
                           std::int64_t columns,
                           float* out);

// Codes a row x of `columns` elements, a multiple of the group size. Without an importance,
// nullptr, as MLX does: zero stays exactly zero; codes are made with scale and bias in f32, which
// are rounded when stored. With one, a finite factor for each column that is not negative, a search
// looks for the smallest sum of importance * squared error of what readers will see, and never
// leaves a larger one than without. Groups with numbers that are not finite get some codes, scale
// and bias.
void quantize_affine_row(AffineFormat format,
                         const float* x,
                         std::int64_t columns,
                         const float* importance,
                         const MutableAffineRow& out);

}  // namespace kakeya
