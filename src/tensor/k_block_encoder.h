// The search behind the K formats of block_encoder.h: scales and codes of 256 elements with a small
// squared error. Used by block_encoder.cc only.
#pragma once

#include <cstdint>

namespace kakeya {

// 256 elements into one block. `importance` is nullptr or 256 factors of the squared
// errors.
void encode_q4_k(const float* x, const float* importance, std::uint8_t* out);  // 144 bytes
void encode_q5_k(const float* x, const float* importance, std::uint8_t* out);  // 176 bytes
void encode_q6_k(const float* x, const float* importance, std::uint8_t* out);  // 210 bytes

}  // namespace kakeya
