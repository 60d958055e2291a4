#include "service/grammar/schema_numbers.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "base/status.h"
#include "service/grammar/decimal.h"
#include "service/grammar/schema_keywords.h"

namespace kakeya::service {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMostDivisor = 256;
constexpr std::int64_t kMostMultiples = 1000;

void tighten(std::optional<NumberBound>& bound, const NumberBound& other, bool is_upper) {
  const bool is_tighter = !bound ||
                          (is_upper ? other.value < bound->value : other.value > bound->value) ||
                          (other.value == bound->value && !other.included);
  if (is_tighter) bound = other;
}

// Answers have at most kMostBoundDigits before the point and behind it: a bound beyond that is
// theirs. False if it says nothing then.
Result<bool> shorten(bool is_upper,
                     NumberBound& bound,
                     const std::string& key,
                     const std::string& where,
                     const NarrowKeyword& narrow) {
  const Decimal& value = bound.value;
  if (value.exponent > kMostBoundDigits) {
    if (is_upper == value.negative) return refused_keyword(key + " beyond 10^31", where);
    bound = {.value = {.negative = value.negative, .digits = "1", .exponent = kMostBoundDigits + 1},
             .included = false};
    return true;
  }
  const auto decimals = static_cast<std::int64_t>(value.digits.size()) - value.exponent;
  if (decimals <= kMostBoundDigits) return true;
  KAKEYA_TRY(narrow(fmt::format("{} of over {} decimals", key, kMostBoundDigits)));
  return false;
}

Status read_divisor(const ordered_json& value,
                    const std::string& where,
                    const NarrowKeyword& narrow,
                    Schema& read) {
  const auto divisor = integer_of(value);
  if (read.kind != SchemaKind::kInteger || !divisor || *divisor < 1 || *divisor > kMostDivisor) {
    return narrow(fmt::format("multipleOf but of integers, 1 to {}", kMostDivisor));
  }
  const NumberBounds& bounds = read.bounds;
  if (!bounds.least && !bounds.most) {
    read.divisor = *divisor;
    return {};
  }
  // Few enough to be listed.
  constexpr std::int64_t kMostListedBound = 1'000'000'000'000'000;
  const auto within = [](const std::optional<NumberBound>& bound) -> std::optional<std::int64_t> {
    const auto whole = bound ? bound->value.integer() : std::nullopt;
    return whole && std::abs(*whole) <= kMostListedBound ? whole : std::nullopt;
  };
  const auto first = within(bounds.least);
  const auto last = within(bounds.most);
  if (!first || !last || (*last - *first) / *divisor > kMostMultiples) {
    return narrow("multipleOf beside one bound, or wide ones");
  }
  read.kind = SchemaKind::kValues;
  std::int64_t at = *first / *divisor * *divisor;
  if (at < *first) at += *divisor;
  for (; at <= *last; at += *divisor) {
    const bool excluded =
        (at == *first && !bounds.least->included) || (at == *last && !bounds.most->included);
    if (!excluded) read.values.emplace_back(at);
  }
  return read.values.empty() ? Status(refused_keyword("multipleOf without a multiple", where))
                             : Status();
}

}  // namespace

std::optional<std::int64_t> integer_of(const ordered_json& value) {
  const auto number = decimal_of(value);
  return number ? number->integer() : std::nullopt;
}

Result<Schema> read_number(const ordered_json& own,
                           SchemaKind kind,
                           const std::string& where,
                           const NarrowKeyword& narrow) {
  Schema read = {.kind = kind};
  for (const auto& [key, value] : own.items()) {
    if (key == "multipleOf") continue;
    auto number = decimal_of(value);
    if (!number) return refused_keyword(key + " that is no number", where);
    const bool is_upper = key == "maximum" || key == "exclusiveMaximum";
    NumberBound bound = {.value = *std::move(number), .included = !key.starts_with("exclusive")};
    KAKEYA_ASSIGN_OR_RETURN(const bool counts, shorten(is_upper, bound, key, where, narrow));
    if (counts) tighten(is_upper ? read.bounds.most : read.bounds.least, bound, is_upper);
  }
  if (own.contains("multipleOf")) KAKEYA_TRY(read_divisor(own["multipleOf"], where, narrow, read));
  return read;
}

}  // namespace kakeya::service
