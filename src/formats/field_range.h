// Bounds of numbers that are read from a file.
#pragma once

#include <cstdint>

namespace kakeya {

// Inclusive bounds of an integer field.
struct IntegerRange {
  std::int64_t low;
  std::int64_t high;
};

// Inclusive bounds of a floating point field.
struct NumberRange {
  double low;
  double high;
};

}  // namespace kakeya
