// JSON that somebody else wrote: bounded before anything of it is allocated, read in a time that
// grows with its bytes alone. The only reader of such texts for servers and templates:
// ordered_json's own compares each member's name with all before it.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "kakeya/status.h"

namespace kakeya {

struct JsonLimits {
  std::size_t depth = 64;        // brackets that are open at once
  std::size_t values = 524'288;  // as JsonSize counts them
  // Keeps numbers that are no integers of 64 bits as they are written, in binary values: a double
  // would not hold all their digits.
  bool as_written = false;
};

// Errors: kInvalidArgument for a text that would be more than the limits, JSON or not, with what
// was expected, for a sentence that says where.
Status check_json_size(std::string_view text, const JsonLimits& limits = {});

// The value that the text is, its members in their order; of members with one name the last one, in
// the place of the first. Errors: those of check_json_size(), and kInvalidArgument for no JSON.
Result<nlohmann::ordered_json> read_json(std::string_view text, const JsonLimits& limits = {});

// True if the text is JSON within the limits.
bool is_json(std::string_view text, const JsonLimits& limits = {});

// Appends a member whose name no member has, without comparing it with those that are there.
void append_member(nlohmann::ordered_json& object,
                   std::string_view name,
                   nlohmann::ordered_json value);

}  // namespace kakeya
