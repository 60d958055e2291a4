// Decimals as schemas write them: exact, of any size.
#pragma once

#include <compare>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace kakeya::service {

// sign * 0.d1d2d3... * 10^exponent; digits begin and end with another one than 0, and there are
// none for zero, whose exponent is 0 and which is not negative.
struct Decimal {
  bool negative = false;
  std::string digits = {};
  std::int64_t exponent = 0;

  bool is_zero() const { return digits.empty(); }
  // True without a fraction.
  bool is_whole() const { return exponent >= static_cast<std::int64_t>(digits.size()); }
  Decimal negated() const;
  // As JSON writes it, with an exponent where many zeros would be.
  std::string text() const;
  // Its digits before the point, at least one, and behind it, at least `decimals` of them.
  std::string whole_digits() const;
  std::string fraction_digits(std::size_t decimals) const;
  // Its value, if it is whole and fits.
  std::optional<std::int64_t> integer() const;

  bool operator==(const Decimal&) const = default;
  std::strong_ordering operator<=>(const Decimal& other) const;
};

// The number that a text of JSON is; nothing for another text, or an exponent beyond a million.
std::optional<Decimal> decimal_of(std::string_view number);
// The number that a value is, also one that is kept as it was written (JsonLimits::as_written).
std::optional<Decimal> decimal_of(const nlohmann::ordered_json& value);

}  // namespace kakeya::service
