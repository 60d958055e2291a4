#include "service/grammar/schema_keywords.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "base/status.h"
#include "service/grammar/decimal.h"

namespace kakeya::service {
namespace {

using nlohmann::ordered_json;
using Names = std::vector<std::string_view>;

// Keywords by the type of value that they are about.
const std::pair<std::string_view, Names> kOfTypes[] = {
    {"object",
     {"properties", "required", "additionalProperties", "minProperties", "maxProperties",
      "unevaluatedProperties"}},
    {"array", {"items", "prefixItems", "additionalItems", "minItems", "maxItems"}},
    {"string", {"minLength", "maxLength", "pattern", "format"}},
    {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
    {"integer", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
    {"boolean", {}},
    {"null", {}},
};

const Names kOfAllTypes = {"type", "$ref", "const", "enum", "anyOf", "oneOf", "allOf"};

const Names kNarrowing = {"not",           "if",
                          "then",          "else",
                          "contains",      "uniqueItems",
                          "dependencies",  "dependentRequired",
                          "propertyNames", "dependentSchemas",
                          "$dynamicRef",   "patternProperties",
                          "$id",           "unevaluatedItems",
                          "$anchor",       "$dynamicAnchor",
                          "$recursiveRef", "$recursiveAnchor"};

bool is_in(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// True for a value that every answer meets.
bool is_neutral(std::string_view keyword, const ordered_json& value) {
  if (keyword == "uniqueItems") return value == false;
  if (keyword == "not") return value == false;
  const bool may_be_empty = is_in({"dependencies", "dependentRequired", "dependentSchemas",
                                   "patternProperties", "propertyNames", "unevaluatedItems"},
                                  keyword);
  return may_be_empty && (value == true || value == ordered_json::object());
}

}  // namespace

Unexpected refused_keyword(std::string_view what, std::string_view where) {
  constexpr std::size_t kMost = 200;
  return error(StatusCode::kInvalidArgument, "JSON schema: {} at {} is not supported",
               what.substr(0, kMost), where.substr(0, kMost));
}

std::string shown_value(const ordered_json& value) {
  const auto number = decimal_of(value);
  if (number) return number->text();
  return value.is_structured() ? value.type_name() : value.dump();
}

bool is_type(std::string_view type) {
  return std::ranges::any_of(kOfTypes, [&](const auto& one) { return one.first == type; });
}

bool is_about(std::string_view keyword, std::string_view type) {
  return std::ranges::any_of(
      kOfTypes, [&](const auto& one) { return one.first == type && is_in(one.second, keyword); });
}

KeywordUse use_of(std::string_view keyword, const ordered_json& value) {
  const bool is_enforced =
      is_in(kOfAllTypes, keyword) ||
      std::ranges::any_of(kOfTypes, [&](const auto& one) { return is_in(one.second, keyword); });
  if (is_enforced) return KeywordUse::kEnforced;
  if (!is_in(kNarrowing, keyword) || is_neutral(keyword, value)) return KeywordUse::kNone;
  return KeywordUse::kNarrows;
}

}  // namespace kakeya::service
