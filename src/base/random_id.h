// Identifiers that nobody can guess and that no two processes make alike.
#pragma once

#include <string>
#include <string_view>

namespace kakeya {

// `prefix` and 32 hexadecimal digits: 128 bits of the system's randomness, fit for secrets.
// Thread-safe.
std::string random_id(std::string_view prefix);

}  // namespace kakeya
