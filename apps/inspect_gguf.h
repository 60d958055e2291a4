// What `kakeya inspect` says of a GGUF file. Reads its head, never the weights.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "formats/gguf.h"

namespace kakeya::cli {

// For people: metadata, long values cut, then one line a tensor.
std::string to_text(const GgufFile& file);

// Of long arrays only the beginning.
nlohmann::ordered_json to_json(const GgufFile& file);

}  // namespace kakeya::cli
