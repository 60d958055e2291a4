// Meanings of types, formats and alternatives of JSON Schema.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "service/grammar/schema.h"

namespace kakeya::service {

// True if the value is of a type of JSON Schema ("integer": any number without a fraction).
bool is_of_type(const nlohmann::ordered_json& value, std::string_view type);

// A regular expression of texts that are in a `format` surely; null for one that is not known. Not
// all that are in it: no leap seconds, short labels of hosts.
const char* pattern_of_format(std::string_view format);

// True if no value can meet two of the schemas, as far as types, listed values and members that
// tell objects apart show.
bool are_disjoint(const SchemaDocument& document, const std::vector<Schema>& schemas);

}  // namespace kakeya::service
