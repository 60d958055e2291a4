// The block formats of GGUF files, in plain loops: what their bytes mean. This is the definition;
// faster readers are compared with it. Every value equals, bit for bit, what gguf-py's
// `gguf.quants.dequantize` gives (tests/data/quantized).
//
// A row is cut into blocks of consecutive elements, each with its own scales:
//
//   name    elements  bytes  bits/element  a code q stands for
//   Q4_0          32     18           4.5  d * (q - 8)
//   Q4_1          32     20           5    d * q + m
//   Q5_0          32     22           5.5  d * (q - 16)
//   Q5_1          32     24           6    d * q + m
//   Q8_0          32     34           8.5  d * q, q signed
//   Q2_K         256     84           2.625  (d * s) * q - (m * t), s and t 4 bits for 16 elements
//   Q3_K         256    110           3.4375 (d * (s - 32)) * (q - 4), s 6 bits for 16 elements
//   Q4_K         256    144           4.5  (d * s) * q - (m * t), s and t 6 bits for 32 elements
//   Q5_K         256    176           5.5  the same
//   Q6_K         256    210           6.5625 (d * s) * (q - 32), s 8 bits, signed, for 16 elements
//   IQ4_NL        32     18           4.5  d * table[q]
//   IQ4_XS       256    136           4.25 (d * (s - 32)) * table[q], s 6 bits for 32 elements
//   MXFP4         32     17           4.25 2^(e - 127) * a 4-bit float
//   NVFP4         64     36           4.5  an 8-bit float for 16 elements * a 4-bit float
//
// d and m are IEEE halves. All products are exact in f32: only where something is added or
// subtracted is there a rounding, and then just that one. quantized_format.cc says where the bits
// are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace kakeya {

// Named as in GGUF, without the underscore.
enum class QuantizedFormat : std::uint8_t {
  kQ40,
  kQ41,
  kQ50,
  kQ51,
  kQ80,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
  kIq4Xs,
  kMxfp4,
  kNvfp4
};

std::span<const QuantizedFormat> all_quantized_formats();

// GGUF's spelling: "Q4_K", "IQ4_NL", "MXFP4", ...
std::string_view quantized_format_name(QuantizedFormat format);
std::optional<QuantizedFormat> parse_quantized_format(std::string_view name);

std::int64_t quantized_block_elements(QuantizedFormat format);
std::int64_t quantized_block_bytes(QuantizedFormat format);

// Bytes of a row. `columns` is a multiple of the block's elements.
std::int64_t quantized_row_bytes(QuantizedFormat format, std::int64_t columns);

// A row of blocks to f32. The caller has checked that `columns` is a multiple of the block's
// elements and that `blocks` has quantized_row_bytes() bytes; they may be unaligned. Any bits are
// fine: scales that are not finite give values that are not finite.
void dequantize_row(QuantizedFormat format,
                    const std::byte* blocks,
                    std::int64_t columns,
                    float* out);

}  // namespace kakeya
