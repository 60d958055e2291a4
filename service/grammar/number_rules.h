// Numbers within bounds, as rules.
#pragma once

#include <cstdint>
#include <optional>

#include "service/grammar/grammar.h"

namespace kakeya::service {

// Wide enough for bounds of 10^15.
__extension__ using Millionths = __int128;

// A decimal: `millionths` / 1,000,000.
struct NumberBound {
  Millionths millionths = 0;
  bool included = true;
};

struct NumberBounds {
  std::optional<NumberBound> least = {};
  std::optional<NumberBound> most = {};
};

// The decimals without an exponent, or the whole numbers, that lie within the bounds.
Expression numbers_within(Grammar& grammar, const NumberBounds& bounds, bool whole);

}  // namespace kakeya::service
