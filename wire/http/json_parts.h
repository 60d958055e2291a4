// Parts of a valid JSON text as they stand there: members keep their order, numbers their digits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kakeya::wire {

// The items of the array, or the members of the object, that `json` is.
std::vector<std::string_view> parts_of(std::string_view json);

// The text of a member of the object `json`; of several of one name the last one's, as the parser
// has it. Empty if there is none.
std::string_view member_text(std::string_view json, std::string_view name);

// The text of the object `json` without members of this name.
std::string without_member(std::string_view json, std::string_view name);

}  // namespace kakeya::wire
