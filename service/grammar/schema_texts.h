// Texts of a JSON Schema: patterns, formats and lengths, also beside each other.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "kakeya/status.h"
#include "service/grammar/schema.h"
#include "service/grammar/schema_numbers.h"

namespace kakeya::service {

// Reads `pattern` and `format` of `own`, of the schema at `where`, into `read`, which has the
// lengths of the text. Where they cannot be enforced together, a format is before a pattern, and
// both are before lengths. `room`: the rules that automata may still make, which is lessened.
// Errors: kInvalidArgument for values that are none of these, and where no text is left; those of
// `narrow`.
Status read_text(const nlohmann::ordered_json& own,
                 const std::string& where,
                 const NarrowKeyword& narrow,
                 std::size_t& room,
                 Effort& effort,
                 Schema& read);

}  // namespace kakeya::service
