// The integer types that the whole interface shares.
#pragma once

#include <cstdint>

namespace kakeya {

// Row of the embedding table; 0 <= id < vocab_size.
using TokenId = std::int32_t;

// Absolute position of a token in its session, from 0. Never a cache slot.
using Position = std::int64_t;

}  // namespace kakeya
