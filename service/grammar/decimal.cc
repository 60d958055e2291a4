#include "service/grammar/decimal.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "service/json_checker.h"

namespace kakeya::service {
namespace {

constexpr std::int64_t kMostExponent = 1'000'000;

// How the magnitudes of two numbers other than zero compare.
std::strong_ordering compare_magnitudes(const Decimal& one, const Decimal& other) {
  if (one.exponent != other.exponent) return one.exponent <=> other.exponent;
  return one.digits.compare(other.digits) <=> 0;
}

}  // namespace

Decimal Decimal::negated() const {
  Decimal other = *this;
  other.negative = !negative && !is_zero();
  return other;
}

std::string Decimal::whole_digits() const {
  if (exponent <= 0) return "0";
  const auto count = static_cast<std::size_t>(exponent);
  std::string whole = digits.substr(0, count);
  whole.append(count - whole.size(), '0');
  return whole;
}

std::string Decimal::fraction_digits(std::size_t decimals) const {
  std::string fraction(exponent < 0 ? static_cast<std::size_t>(-exponent) : 0, '0');
  const auto begin = static_cast<std::size_t>(std::max<std::int64_t>(exponent, 0));
  if (begin < digits.size()) fraction += digits.substr(begin);
  if (fraction.size() < decimals) fraction.append(decimals - fraction.size(), '0');
  return fraction;
}

std::string Decimal::text() const {
  constexpr std::int64_t kMostZeros = 32;
  std::string text = negative ? "-" : "";
  const auto size = static_cast<std::int64_t>(digits.size());
  if (exponent < -kMostZeros || exponent > size + kMostZeros) {
    text += digits.substr(0, 1);
    if (size > 1) text += "." + digits.substr(1);
    return text + "e" + std::to_string(exponent - 1);
  }
  text += whole_digits();
  const std::string fraction = is_zero() ? "" : fraction_digits(0);
  return fraction.empty() ? text : text + "." + fraction;
}

std::optional<std::int64_t> Decimal::integer() const {
  constexpr std::int64_t kMostOf64Bits = 19;  // digits
  if (!is_whole() || exponent > kMostOf64Bits) return {};
  std::string text = (negative ? "-" : "") + digits;
  text.append(static_cast<std::size_t>(exponent) - digits.size(), '0');
  if (is_zero()) text = "0";
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc()) return {};
  return value;
}

std::strong_ordering Decimal::operator<=>(const Decimal& other) const {
  const auto sign = [](const Decimal& one) { return one.is_zero() ? 0 : one.negative ? -1 : 1; };
  if (sign(*this) != sign(other)) return sign(*this) <=> sign(other);
  if (is_zero()) return std::strong_ordering::equal;
  return negative ? compare_magnitudes(other, *this) : compare_magnitudes(*this, other);
}

std::optional<Decimal> decimal_of(const nlohmann::ordered_json& value) {
  if (value.is_binary()) {
    const auto& bytes = value.get_binary();
    return decimal_of(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  if (!value.is_number()) return {};
  return decimal_of(std::string_view(value.dump()));
}

std::optional<Decimal> decimal_of(std::string_view number) {
  if (!is_json_number(number)) return {};
  Decimal read = {.negative = number.front() == '-'};
  if (read.negative) number.remove_prefix(1);
  const std::size_t mantissa = number.find_first_of("eE");
  std::int64_t exponent = 0;
  if (mantissa != std::string_view::npos) {
    std::string_view text = number.substr(mantissa + 1);
    if (text.front() == '+') text.remove_prefix(1);
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), exponent);
    if (parsed.ec != std::errc() || exponent < -kMostExponent || exponent > kMostExponent)
      return {};
    number = number.substr(0, mantissa);
  }
  const std::size_t point = number.find('.');
  read.digits = std::string(number.substr(0, point));
  read.exponent = exponent + static_cast<std::int64_t>(read.digits.size());
  if (point != std::string_view::npos) read.digits += number.substr(point + 1);
  const std::size_t first = read.digits.find_first_not_of('0');
  if (first == std::string::npos) return Decimal();
  read.exponent -= static_cast<std::int64_t>(first);
  read.digits = read.digits.substr(first, read.digits.find_last_not_of('0') + 1 - first);
  return read;
}

}  // namespace kakeya::service
