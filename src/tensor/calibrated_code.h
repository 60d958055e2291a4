// How vectors of one KV head are stored in a few bits an element by what was learned of such
// vectors before (calibration), in plain loops: what the codes mean. Backends read codes in their
// own way, by the tables of it.
//
// y = x - mean, for values times the orthonormal Hadamard matrix. A number of bits b_i, 0 to
// kMostBits, for each element, the same for all vectors of the head; a scale t (bf16) for each
// block of elements; code c_i of b_i bits stands for
//
//   y_i = t deviation_i D(b_i) (c_i + 1/2 - 2^(b_i - 1)),  and for 0 where b_i is 0,
//
// D(b) being the step of a uniform code of b bits that loses least of a normal variable of
// deviation 1. Encoding takes the scale, of a number of multiples of the block's root mean square,
// whose errors, weighed by what errors of the elements cost, are least.
//
// A vector is its scales, one after the other, then its codes in the order of the elements, without
// gaps, each from its lowest bit on.
//
// Bits go to the elements whose error they lower most (reverse water-filling). Source of the rule:
// Cover and Thomas, Elements of Information Theory, 10.3.3, in whole bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/code_view.h"

namespace kakeya {

class CalibratedCode {
 public:
  static constexpr int kMostBits = 7;
  // Values have a scale for so many elements, if they have whole blocks of it.
  static constexpr std::int64_t kValueBlock = 32;

  // Bytes of the tables of a code of E elements, whole cache lines.
  static std::size_t table_bytes(std::int64_t head_dim);

  // The code of keys: `bits` on average for the elements. mean [E]; variance [E] of the elements,
  // >= 0; cost [E] of a squared error of an element, >= 0. E is a multiple of kCodeGroup. `tables`
  // gets table_bytes(), begins with a cache line and must outlive the code.
  static CalibratedCode of_keys(std::span<const float> mean,
                                std::span<const float> variance,
                                std::span<const float> cost,
                                int bits,
                                std::byte* tables);
  // The code of values: `bits` for each element.
  static CalibratedCode of_values(std::span<const float> mean, int bits, std::byte* tables);

  // Bytes of a vector of E elements.
  static std::int64_t key_bytes(std::int64_t head_dim, int bits);
  static std::int64_t value_bytes(std::int64_t head_dim, int bits);

  std::int64_t head_dim() const { return static_cast<std::int64_t>(mean_.size()); }
  std::int64_t bytes() const { return bytes_; }
  CodeView view() const {
    return {mean_.data(), step_.data(), base_.data(), groups_.data(), block_, turned_};
  }
  std::span<const std::uint8_t> bits() const { return bits_; }

  // x [E] to bytes() bytes and back. Numbers that are not finite make the whole vector NaN.
  void encode(const float* x, std::byte* out) const;
  void decode(const std::byte* bytes, float* out) const;

  // Multiplies x [E] with the Hadamard matrix, in pieces of the largest power of two that divides
  // E, in place.
  static void turn_back(float* x, std::int64_t head_dim);

 private:
  CalibratedCode(std::span<const float> mean, std::int64_t block, bool turned, std::byte* tables);
  // Lays the codes out, and fills the tables that follow from that.
  void lay_out(std::span<const float> deviation);
  void encode_block(const float* y,
                    std::int64_t begin,
                    std::uint16_t& scale,
                    std::uint8_t* codes) const;

  std::int64_t block_;
  bool turned_;
  std::int64_t bytes_ = 0;
  // The tables.
  std::span<CodeGroup> groups_;
  std::span<float> mean_;  // in the turned space, where there is one
  std::span<float> step_;
  std::span<float> base_;
  std::span<float> weight_;        // of the square of an error of y
  std::span<std::int32_t> place_;  // of each code, in bits from the vector's first byte on
  std::span<std::uint8_t> bits_;
};

// The bits for each element, `total` in all, of elements whose errors cost so much without a bit.
std::vector<std::uint8_t> share_bits(std::span<const float> importance, std::int64_t total);

}  // namespace kakeya
