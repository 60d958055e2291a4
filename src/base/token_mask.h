// Masks of tokens, as kakeya/constraint.h has them: bit id % 32 of word id / 32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kakeya/types.h"

namespace kakeya {

inline bool is_allowed(std::span<const std::uint32_t> mask, std::size_t id) {
  return (mask[id / 32] >> (id % 32) & 1U) != 0;
}

inline void set_allowed(std::span<std::uint32_t> mask, TokenId id, bool allowed) {
  const auto place = static_cast<std::size_t>(id);
  const std::uint32_t bit = std::uint32_t{1} << (place % 32);
  std::uint32_t& word = mask[place / 32];
  word = allowed ? word | bit : word & ~bit;
}

}  // namespace kakeya
