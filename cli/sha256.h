// Hashes by which reports and journals name texts and tokens.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kakeya/types.h"

namespace kakeya::cli {

// SHA-256 of a text, in hexadecimal.
std::string text_sha256(std::string_view text);

// SHA-256 of the ids as little-endian u32, in hexadecimal.
std::string ids_sha256(std::span<const TokenId> ids);

}  // namespace kakeya::cli
