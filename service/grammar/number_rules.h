// Numbers within bounds, as rules.
#pragma once

#include <cstdint>
#include <optional>

#include "service/grammar/decimal.h"
#include "service/grammar/grammar.h"

namespace kakeya::service {

// The most digits of a bound before its point, and behind it.
inline constexpr std::int64_t kMostBoundDigits = 31;

struct NumberBound {
  Decimal value = {};
  bool included = true;
};

struct NumberBounds {
  std::optional<NumberBound> least = {};
  std::optional<NumberBound> most = {};
};

// The decimals without an exponent, or the whole numbers, that lie within the bounds, of at most
// kMostBoundDigits.
Expression numbers_within(Grammar& grammar, const NumberBounds& bounds, bool whole);

}  // namespace kakeya::service
