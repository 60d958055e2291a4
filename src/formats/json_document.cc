#include "formats/json_document.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"
#include "formats/printable.h"

namespace kakeya {

namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

constexpr std::size_t kMaxListLength = 1 << 20;

Status check_unique_keys(simdjson::dom::object object) {
  std::vector<std::string_view> keys;
  for (const auto field : object) keys.push_back(field.key);
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice != keys.end()) {
    return invalid_argument("duplicate key \"{}\" in a JSON object", printable(*twice));
  }
  return {};
}

// Recursion is bounded by JsonDocument::kMaxDepth, which the parser has enforced.
Status check_all_keys(element value) {
  simdjson::dom::object object;
  simdjson::dom::array array;
  if (value.get(object) == simdjson::SUCCESS) {
    KAKEYA_TRY(check_unique_keys(object));
    for (const auto field : object) KAKEYA_TRY(check_all_keys(field.value));
  } else if (value.get(array) == simdjson::SUCCESS) {
    for (const element item : array) KAKEYA_TRY(check_all_keys(item));
  }
  return {};
}

Result<std::int64_t> to_integer(element value, const std::string& name, IntegerRange range) {
  std::int64_t result = 0;
  if (value.get(result) != simdjson::SUCCESS || result < range.low || result > range.high) {
    return invalid_argument("{}: expected an integer from {} to {}, got {}", name, range.low,
                            range.high, describe(value));
  }
  return result;
}

// The first number outside of texts that Python writes and JSON does not have.
std::string_view find_python_number(std::string_view text) {
  bool in_text = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') in_text = !in_text;
    if (in_text && text[at] == '\\') ++at;
    if (in_text) continue;
    for (const std::string_view name : {"-Infinity", "Infinity", "NaN"}) {
      if (text.substr(at).starts_with(name)) return name;
    }
  }
  return {};
}

// Why a text is no JSON, in words about the mistakes that writers make.
std::string reason_of(std::string_view text, simdjson::error_code code) {
  if (text.starts_with("\xEF\xBB\xBF")) {
    return "expected text without a byte order mark, got one (EF BB BF) in front";
  }
  const std::string_view name = find_python_number(text);
  if (name.empty()) return simdjson::error_message(code);
  return fmt::format("expected numbers, got {}, which JSON does not have", name);
}

}  // namespace

Result<JsonDocument> JsonDocument::parse(std::string_view text) {
  JsonDocument document;
  const auto parser = std::make_shared<simdjson::dom::parser>();
  document.parser_ = parser;
  auto code = parser->allocate(text.size(), kMaxDepth);
  if (code == simdjson::SUCCESS) {
    code = parser->parse(text.data(), text.size()).get(document.root_);
  }
  switch (code) {
    case simdjson::SUCCESS:
      break;
    case simdjson::DEPTH_ERROR:
      return invalid_argument("JSON is nested deeper than {} levels", kMaxDepth);
    case simdjson::UTF8_ERROR:
      return invalid_argument("JSON is not valid UTF-8");
    case simdjson::MEMALLOC:
      return error(StatusCode::kResourceExhausted, "not enough memory to parse {} bytes of JSON",
                   text.size());
    default:
      return invalid_argument("not valid JSON: {}", reason_of(text, code));
  }
  KAKEYA_TRY(check_all_keys(document.root_));
  return document;
}

Result<JsonFields> root_fields(const JsonDocument& document) {
  simdjson::dom::object object;
  if (document.root().get(object) != simdjson::SUCCESS) {
    return invalid_argument("expected a JSON object, got {}", describe(document.root()));
  }
  return JsonFields(object, "");
}

std::vector<std::string_view> JsonFields::keys() const {
  std::vector<std::string_view> keys;
  for (const auto field : object_) keys.push_back(field.key);
  return keys;
}

std::optional<element> JsonFields::find(std::string_view key) const {
  element value;
  if (object_.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

Result<std::int64_t> JsonFields::integer(std::string_view key, IntegerRange range) const {
  const auto value = find(key);
  if (!value) return invalid_argument("{}: expected an integer, got nothing", name(key));
  return to_integer(*value, name(key), range);
}

Result<std::int64_t> JsonFields::integer_or(std::string_view key,
                                            std::int64_t fallback,
                                            IntegerRange range) const {
  const auto value = find(key);
  if (!value) return fallback;
  return to_integer(*value, name(key), range);
}

Result<double> JsonFields::number_or(std::string_view key,
                                     double fallback,
                                     NumberRange range) const {
  const auto value = find(key);
  if (!value) return fallback;
  double result = 0;
  if (value->get(result) != simdjson::SUCCESS || !(result >= range.low && result <= range.high)) {
    return invalid_argument("{}: expected a number from {:g} to {:g}, got {}", name(key), range.low,
                            range.high, describe(*value));
  }
  return result;
}

Result<bool> JsonFields::boolean_or(std::string_view key, bool fallback) const {
  const auto value = find(key);
  if (!value) return fallback;
  bool result = false;
  if (value->get(result) != simdjson::SUCCESS) {
    return invalid_argument("{}: expected true or false, got {}", name(key), describe(*value));
  }
  return result;
}

Result<std::string> JsonFields::text_or(std::string_view key, std::string_view fallback) const {
  const auto value = find(key);
  if (!value) return std::string(fallback);
  std::string_view result;
  if (value->get(result) != simdjson::SUCCESS) {
    return invalid_argument("{}: expected a string, got {}", name(key), describe(*value));
  }
  return std::string(result);
}

Result<std::optional<JsonFields>> JsonFields::object(std::string_view key) const {
  const auto value = find(key);
  if (!value) return std::optional<JsonFields>();
  simdjson::dom::object result;
  if (value->get(result) != simdjson::SUCCESS) {
    return invalid_argument("{}: expected an object, got {}", name(key), describe(*value));
  }
  return std::optional<JsonFields>(JsonFields(result, name(key) + "."));
}

Result<std::vector<std::int64_t>> JsonFields::integers(std::string_view key,
                                                       IntegerRange range) const {
  std::vector<std::int64_t> result;
  const auto value = find(key);
  if (!value) return result;
  simdjson::dom::array array;
  if (value->get(array) != simdjson::SUCCESS) {
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t single, to_integer(*value, name(key), range));
    result.push_back(single);
    return result;
  }
  for (const element item : array) {
    if (result.size() == kMaxListLength) {
      return invalid_argument("{}: a list of more than {} values", name(key), kMaxListLength);
    }
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t next, to_integer(item, name(key), range));
    result.push_back(next);
  }
  return result;
}

Result<std::vector<std::string>> JsonFields::texts(std::string_view key) const {
  std::vector<std::string> result;
  const auto value = find(key);
  if (!value) return result;
  simdjson::dom::array array;
  if (value->get(array) != simdjson::SUCCESS) {
    return invalid_argument("{}: expected a list of strings, got {}", name(key), describe(*value));
  }
  for (const element item : array) {
    std::string_view text;
    if (item.get(text) != simdjson::SUCCESS || result.size() == kMaxListLength) {
      return invalid_argument("{}: expected at most {} strings, got {} at index {}", name(key),
                              kMaxListLength, describe(item), result.size());
    }
    result.emplace_back(text);
  }
  return result;
}

std::string describe(element value) {
  switch (value.type()) {
    case element_type::ARRAY:
      return "a list";
    case element_type::OBJECT:
      return "an object";
    case element_type::INT64:
      return fmt::to_string(value.get_int64().value_unsafe());
    case element_type::UINT64:
      return fmt::to_string(value.get_uint64().value_unsafe());
    case element_type::DOUBLE:
      return fmt::to_string(value.get_double().value_unsafe());
    case element_type::STRING:
      return fmt::format("\"{}\"", printable(value.get_string().value_unsafe()));
    case element_type::BOOL:
      return value.get_bool().value_unsafe() ? "true" : "false";
    case element_type::NULL_VALUE:
      return "null";
  }
  return "an unknown value";
}

}  // namespace kakeya
