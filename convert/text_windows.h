// A text as pieces that a model runs one after the other, each from nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kakeya/types.h"

namespace kakeya {

// Tokens of a window: long enough that few of them know little before them.
inline constexpr std::int64_t kTextWindow = 512;

// Cuts the ids into windows of `length` tokens, length >= 2, the last one maybe shorter. Each
// begins with `bos`, if there is one, which counts. Nothing of fewer than two tokens comes out.
std::vector<std::vector<TokenId>> cut_into_windows(std::span<const TokenId> ids,
                                                   std::optional<TokenId> bos,
                                                   std::int64_t length = kTextWindow);

}  // namespace kakeya
