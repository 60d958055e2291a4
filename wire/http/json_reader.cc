#include "wire/http/json_reader.h"

#include <limits>

#include "base/json_size.h"

namespace kakeya::wire {
namespace {

tl::unexpected<service::Refusal> refuse(std::string message) {
  service::Refusal refusal;
  refusal.message = "the body: " + std::move(message);
  return tl::unexpected(std::move(refusal));
}

}  // namespace

// The value that was there, in a few words.
std::string shown(const Json& value) {
  if (!value.is_primitive() || value.is_null()) return value.type_name();
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 40) + "...";
  return text;
}

std::optional<std::int64_t> whole_number(const Json& value) {
  constexpr double kMost = 0x1p53;  // beyond, a float is no longer any whole number
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return {};
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return {};
  const auto number = value.get<double>();
  if (std::trunc(number) != number || std::abs(number) > kMost) return {};
  return static_cast<std::int64_t>(number);
}

service::Outcome<Json> parse_body(std::string_view body) {
  const JsonSize size = json_size(body);
  if (size.depth > kMostJsonDepth) {
    return refuse(fmt::format("expected at most {} levels of JSON, got more", kMostJsonDepth));
  }
  if (size.values > kMostJsonValues) {
    return refuse(fmt::format("expected at most {} JSON values, got more", kMostJsonValues));
  }
  try {
    Json parsed = Json::parse(body);
    if (!parsed.is_object()) return refuse("expected a JSON object, got " + shown(parsed));
    return parsed;
  } catch (const Json::parse_error& failure) {
    return refuse(fmt::format("expected JSON, got an error at byte {}", failure.byte));
  } catch (const Json::out_of_range&) {
    return refuse("expected JSON, got a number beyond all bounds");
  }
}

}  // namespace kakeya::wire
