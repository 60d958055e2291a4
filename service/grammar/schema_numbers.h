// Numbers of a JSON Schema: bounds and divisors.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "kakeya/status.h"
#include "service/grammar/schema.h"

namespace kakeya::service {

// The value, if it is a whole number of 64 bits.
std::optional<std::int64_t> integer_of(const nlohmann::ordered_json& value);

// Notes a keyword that is not enforced, or refuses it.
using NarrowKeyword = std::function<Status(std::string_view what)>;

// Reads the keywords of numbers in `own`, of the schema at `where`; `kind`: kInteger or kNumber.
// Errors: kInvalidArgument for values that are no numbers, and where no number is left; those of
// `narrow`.
Result<Schema> read_number(const nlohmann::ordered_json& own,
                           SchemaKind kind,
                           const std::string& where,
                           const NarrowKeyword& narrow);

}  // namespace kakeya::service
