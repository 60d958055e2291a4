#include "service/grammar/schema_types.h"

#include <algorithm>
#include <utility>

#include "service/grammar/decimal.h"

namespace kakeya::service {
namespace {

using nlohmann::ordered_json;

// RFC 3339, days of each month; a leap year's 29th of February. No year 0, which some libraries do
// not know.
#define KAKEYA_YEAR "(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
#define KAKEYA_DATE                                                                           \
  "(" KAKEYA_YEAR                                                                             \
  "-((01|03|05|07|08|10|12)-(0[1-9]|[12][0-9]|3[01])|(04|06|09|11)-(0[1-9]|[12][0-9]|30)|02-" \
  "(0[1-9]|1[0-9]|2[0-8]))|([0-9][0-9](0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|"    \
  "[13579][26])00)-02-29)"
#define KAKEYA_TIME \
  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define KAKEYA_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
// Names end within the lengths that RFC 1123 (253), RFC 5321 (254) and usual limits of addresses
// (2,083) leave, so that a limit beside the format says nothing more.
#define KAKEYA_LABEL "[a-zA-Z0-9]([a-zA-Z0-9-]{0,20}[a-zA-Z0-9])?"
#define KAKEYA_HOST KAKEYA_LABEL "(\\." KAKEYA_LABEL "){0,6}"
#define KAKEYA_ATOM "[a-zA-Z0-9_+-]{1,20}"

constexpr std::pair<std::string_view, const char*> kFormats[] = {
    {"date", "^" KAKEYA_DATE "$"},
    {"time", "^" KAKEYA_TIME "$"},
    {"date-time", "^" KAKEYA_DATE "T" KAKEYA_TIME "$"},
    {"ipv4", "^(" KAKEYA_BYTE "\\.){3}" KAKEYA_BYTE "$"},
    {"uuid", "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
    {"hostname", "^" KAKEYA_HOST "$"},
    // Those that have all of their parts: others are valid as well.
    {"duration", "^P[0-9]{1,4}D(T[0-9]{1,4}H([0-9]{1,4}M([0-9]{1,4}S)?)?)?$"},
    {"ipv6", "^([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}$"},
    {"uri", "^[a-z][a-z0-9]{1,10}://" KAKEYA_HOST "(:[0-9]{1,5})?(/[a-zA-Z0-9_.~/-]{0,400})?$"},
    // As narrow as the patterns that libraries of schemas write beside it.
    {"email",
     "^" KAKEYA_ATOM "(\\." KAKEYA_ATOM "){0,2}@(" KAKEYA_LABEL "\\.){1,6}[a-zA-Z]{2,10}$"},
};

// Empty for a schema of several types.
std::string_view type_of(const Schema& schema) {
  switch (schema.kind) {
    case SchemaKind::kNull:
      return "null";
    case SchemaKind::kBoolean:
      return "boolean";
    case SchemaKind::kInteger:
      return "integer";
    case SchemaKind::kNumber:
      return "number";
    case SchemaKind::kString:
      return "string";
    case SchemaKind::kArray:
      return "array";
    case SchemaKind::kObject:
      return "object";
    case SchemaKind::kAny:
    case SchemaKind::kReference:
    case SchemaKind::kValues:
    case SchemaKind::kAnyOf:
      break;
  }
  return "";
}

// The schema that this one refers to, if that ends soon.
const Schema& resolved(const SchemaDocument& document, const Schema& schema) {
  constexpr int kMostHops = 8;
  const Schema* at = &schema;
  for (int hop = 0; hop < kMostHops && at->kind == SchemaKind::kReference; ++hop) {
    at = &document.definitions[at->reference];
  }
  return *at;
}

bool share_no_value(const Schema& one, const Schema& other) {
  return std::ranges::none_of(one.values, [&](const ordered_json& value) {
    return std::ranges::find(other.values, value) != other.values.end();
  });
}

// True for objects with a member that both require, and whose listed values tell them apart.
bool have_tag(const Schema& one, const Schema& other) {
  return std::ranges::any_of(one.properties, [&](const auto& property) {
    const auto& [name, values] = property;
    const auto theirs = std::ranges::find(
        other.properties, name, [](const auto& its) -> auto& { return its.first; });
    const auto is_required = [&name = name](const Schema& schema) {
      return std::ranges::find(schema.required, name) != schema.required.end();
    };
    return theirs != other.properties.end() && is_required(one) && is_required(other) &&
           values.kind == SchemaKind::kValues && theirs->second.kind == SchemaKind::kValues &&
           share_no_value(values, theirs->second);
  });
}

bool is_number(std::string_view type) {
  return type == "integer" || type == "number";
}

bool are_apart(const Schema& one, const Schema& other) {
  const std::string_view type = type_of(one);
  const std::string_view other_type = type_of(other);
  if (one.kind == SchemaKind::kValues && other.kind == SchemaKind::kValues)
    return share_no_value(one, other);
  if (one.kind == SchemaKind::kValues || other.kind == SchemaKind::kValues) {
    const Schema& values = one.kind == SchemaKind::kValues ? one : other;
    const std::string_view its = one.kind == SchemaKind::kValues ? other_type : type;
    return !its.empty() && std::ranges::none_of(values.values, [&](const ordered_json& value) {
      return is_of_type(value, its);
    });
  }
  if (type.empty() || other_type.empty()) return false;
  if (one.kind == SchemaKind::kObject && other.kind == SchemaKind::kObject)
    return have_tag(one, other);
  return type != other_type && !(is_number(type) && is_number(other_type));
}

}  // namespace

bool is_of_type(const ordered_json& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  const auto number = decimal_of(value);
  if (type == "number") return number.has_value();
  return type == "integer" && number && number->is_whole();
}

const char* pattern_of_format(std::string_view format) {
  for (const auto& [name, pattern] : kFormats) {
    if (name == format) return pattern;
  }
  return nullptr;
}

bool are_disjoint(const SchemaDocument& document, const std::vector<Schema>& schemas) {
  for (std::size_t i = 0; i < schemas.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!are_apart(resolved(document, schemas[i]), resolved(document, schemas[j]))) return false;
    }
  }
  return true;
}

}  // namespace kakeya::service
