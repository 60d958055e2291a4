// How one stored vector of a key/value head is coded, in plain loops: what the formats mean.
// Backends store rows with encode_kv and may decode them in their own way.
//
//   name   bytes of E elements   what
//   f32    4 E
//   bf16   2 E
//   int8   E + 4                 one scale; code q stands for scale * q, -127 ... 127
//   e8     E / 2 + 4             rotated; one scale; points of the lattice E8, 32 bits for 8
//
// Rotated: multiplied by the orthonormal Hadamard matrix of order E, which spreads outliers over
// all elements; decoding rotates back.
//
// E8: D8 (whole numbers with an even sum) and D8 + 1/2, here -8 ... 7 (+ 1/2). Code: eight fields
// of 4 bits; the lowest bit of the last follows from the sum and tells the coset instead. Block b
// of a vector has the elements b, b + E / 8, b + 2 E / 8, ..., and byte i of fields holds a lower
// half's element i and an upper half's.
//
// Encoding picks the nearest lattice point within the range, so every decoded block is one. Source:
// Conway and Sloane, "Fast quantizing and decoding algorithms for lattice quantizers and codes"
// (1982), with the range as a side condition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kakeya/options.h"

namespace kakeya {

// In the order of KvType, which has kAuto in front.
enum class KvFormat : std::uint8_t { kF32, kBf16, kInt8, kE8 };

inline constexpr KvFormat kKvFormats[] = {KvFormat::kF32, KvFormat::kBf16, KvFormat::kInt8,
                                          KvFormat::kE8};

inline constexpr std::int64_t kMaxKvHeadDim = 512;
// The step of E8 that loses least of a normal distribution, in standard deviations; found by
// minimising the mean squared error over 10^6 draws. Rotated vectors are nearly normal.
inline constexpr float kE8NormalStep = 0.335F;
// The largest number that a step of 1 reaches.
inline constexpr float kE8Reach = 7.5F;

// The format of a type; there is none of kAuto.
KvFormat kv_format_of(KvType type);
// The name that its type has.
std::string_view kv_format_name(KvFormat format);
std::optional<KvFormat> parse_kv_format(std::string_view name);

// True if heads of E elements can be stored so: e8 needs a power of two from 8 to kMaxKvHeadDim.
bool kv_format_supports(KvFormat format, std::int64_t head_dim);

// Bytes of one vector of E elements; 0 <= E.
std::int64_t kv_vector_bytes(KvFormat format, std::int64_t head_dim);

// x [E] to bytes and back; E is supported. Numbers that are not finite make the whole vector NaN
// (f32 and bf16 keep them as they are).
void encode_kv(KvFormat format, const float* x, std::int64_t head_dim, std::byte* out);
void decode_kv(KvFormat format, const std::byte* bytes, std::int64_t head_dim, float* out);

// x [E] times the orthonormal Hadamard matrix (Sylvester's order), in place; its own inverse. E is
// a power of two.
void hadamard_transform(float* x, std::int64_t size);

}  // namespace kakeya
