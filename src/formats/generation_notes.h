// Fields of a generation_config.json that are not followed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kakeya/status.h"

namespace kakeya {

// Lists the fields that ask for another way to choose tokens (beams, n-gram bans and the like) than
// there is, each with its value: "num_beams 4". Values that mean "off" are not listed. Errors:
// kInvalidArgument for text that is no JSON object.
Result<std::vector<std::string>> fields_not_followed(std::string_view json);

// Lists those of DIR/generation_config.json; none of a GGUF file or without the file. Errors: as
// above, with the path.
Result<std::vector<std::string>> load_fields_not_followed(const std::string& dir);

}  // namespace kakeya
