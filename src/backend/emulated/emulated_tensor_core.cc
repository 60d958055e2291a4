#include "backend/emulated/emulated_tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "tensor/dtype.h"

namespace kakeya::emulated {
namespace {

constexpr int kFractionBits = 25;
constexpr int kLeastExponent = -126;  // of normal floats, and what subnormal ones are counted in
constexpr int kLeastFraction = -149;  // the last bit of a subnormal float

// significand * 2^(exponent - fraction bits)
struct Number {
  std::int64_t significand = 0;
  int exponent = kLeastExponent;
};

Number split(std::uint32_t sign, std::uint32_t field, std::uint32_t fraction, int fraction_bits) {
  const std::int64_t hidden = field == 0 ? 0 : std::int64_t{1} << fraction_bits;
  const std::int64_t size = hidden + fraction;
  return {sign != 0 ? -size : size, field == 0 ? kLeastExponent : static_cast<int>(field) - 127};
}

Number split(std::uint16_t x) {
  return split(x >> 15, x >> 7 & 255U, x & 127U, 7);
}

Number split(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return split(bits >> 31, bits >> 23 & 255U, bits & 0x7fffffU, 23);
}

bool is_finite(std::uint16_t x) {
  return (x >> 7 & 255U) != 255;
}

// A number of some fraction bits with those of sums, cut.
std::int64_t cut(const Number& number, int fraction_bits, int exponent) {
  const std::int64_t size = std::abs(number.significand) << (kFractionBits - fraction_bits);
  const int behind = exponent - number.exponent;  // negative for zeros, perhaps
  const std::int64_t kept = behind < 0 || behind > 62 ? 0 : size >> behind;
  return number.significand < 0 ? -kept : kept;
}

// sum * 2^(exponent - kFractionBits), cut.
float to_float(std::int64_t sum, int exponent) {
  if (sum == 0) return 0.0F;
  const auto size = static_cast<std::uint64_t>(std::abs(sum));
  const int last = exponent - kFractionBits;
  const int drop =
      std::max({static_cast<int>(std::bit_width(size)) - 24, kLeastFraction - last, 0});
  const double kept = std::ldexp(static_cast<double>(size >> drop), last + drop);
  return static_cast<float>(sum < 0 ? -kept : kept);
}

float add_what_is_not_finite(const std::uint16_t* a, const std::uint16_t* b, float sum) {
  for (int i = 0; i < kTensorDepth; ++i) {
    sum += kakeya::to_float(BFloat16{a[i]}) * kakeya::to_float(BFloat16{b[i]});
  }
  return sum;
}

}  // namespace

float add_products(const std::uint16_t* a, const std::uint16_t* b, float sum) {
  Number products[kTensorDepth];
  const Number before = split(sum);
  int largest = before.exponent;
  bool all_finite = std::isfinite(sum);
  for (int i = 0; i < kTensorDepth; ++i) {
    all_finite = all_finite && is_finite(a[i]) && is_finite(b[i]);
    const Number x = split(a[i]);
    const Number y = split(b[i]);
    products[i] = {x.significand * y.significand, x.exponent + y.exponent};
    if (products[i].significand != 0) largest = std::max(largest, products[i].exponent);
  }
  if (!all_finite) return add_what_is_not_finite(a, b, sum);
  std::int64_t total = cut(before, 23, largest);
  for (const Number& product : products) {
    total += cut(product, 14, largest);
  }
  return to_float(total, largest);
}

// Lane l has of `a` rows l / 4 and 8 behind it, of `b` and the sums the columns as below.
void multiply_fragments(void* const* lanes) {
  constexpr int kLanes = 32;
  constexpr int kColumns = 8;
  std::uint16_t a[16][kTensorDepth];
  std::uint16_t b[kColumns][kTensorDepth];
  const auto put = [](std::uint16_t* to, std::uint32_t pair) {
    to[0] = static_cast<std::uint16_t>(pair);
    to[1] = static_cast<std::uint16_t>(pair >> 16);
  };
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto& own = *static_cast<const Fragment*>(lanes[lane]);
    const int group = lane / 4;
    const int depth = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) put(&a[group + i % 2 * 8][depth + i / 2 * 8], own.a[i]);
    for (int i = 0; i < 2; ++i) put(&b[group][depth + i * 8], own.b[i]);
  }
  bool is_zero[kColumns];
  for (int column = 0; column < kColumns; ++column) {
    is_zero[column] = std::all_of(std::begin(b[column]), std::end(b[column]),
                                  [](std::uint16_t x) { return x == 0; });
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    auto& own = *static_cast<Fragment*>(lanes[lane]);
    for (int i = 0; i < 4; ++i) {
      const int column = lane % 4 * 2 + i % 2;
      // Rows that are not there add nothing, and take no time.
      if (is_zero[column] && own.sums[i] == 0.0F) continue;
      own.sums[i] = add_products(a[lane / 4 + i / 2 * 8], b[column], own.sums[i]);
    }
  }
}

namespace {

// True if `column` of b is the first one again.
bool has_equal_columns(void* const* lanes, int fragment, int column) {
  for (int part = 0; part < 4; ++part) {
    const auto* first = static_cast<const IntegerFragment*>(lanes[part]) + fragment;
    const auto* other = static_cast<const IntegerFragment*>(lanes[column * 4 + part]) + fragment;
    if (std::memcmp(first->b, other->b, sizeof(first->b)) != 0) return false;
  }
  return true;
}

}  // namespace

// Lanes have rows and columns as above, four bytes of them at a time: register `i` of `a` of row l
// / 4 + i % 2 * 8, and columns l % 4 * 4 + i / 2 * 16 on.
void multiply_integers(void* const* lanes, int count) {
  const auto of = [&](int lane, int i) -> IntegerFragment& {
    return static_cast<IntegerFragment*>(lanes[lane])[i];
  };
  const auto add_four = [](int sum, std::uint32_t a, std::uint32_t b) {
    for (int shift = 0; shift < 32; shift += 8) {
      sum += static_cast<int>(a >> shift & 255U) * static_cast<std::int8_t>(b >> shift & 255U);
    }
    return sum;
  };
  for (int fragment = 0; fragment < count; ++fragment) {
    const auto sum_of = [&](int row, int column) -> int& {
      return of(row % 8 * 4 + column / 2, fragment).sums[row / 8 * 2 + column % 2];
    };
    for (int column = 0; column < 8; ++column) {
      bool is_zero = true;
      for (int part = 0; part < 4; ++part) {
        const std::uint32_t* b = of(column * 4 + part, fragment).b;
        is_zero = is_zero && b[0] == 0 && b[1] == 0;
      }
      if (is_zero) continue;  // rows that are not there take no time
      if (column > 0 && has_equal_columns(lanes, fragment, column)) {
        for (int row = 0; row < 16; ++row) sum_of(row, column) = sum_of(row, 0);
        continue;
      }
      for (int row = 0; row < 16; ++row) {
        int& sum = sum_of(row, column);
        for (int part = 0; part < 4; ++part) {
          const std::uint32_t* a = of(row % 8 * 4 + part, fragment).a;
          const std::uint32_t* b = of(column * 4 + part, fragment).b;
          sum = add_four(add_four(sum, a[row / 8], b[0]), a[row / 8 + 2], b[1]);
        }
      }
    }
  }
}

}  // namespace kakeya::emulated
