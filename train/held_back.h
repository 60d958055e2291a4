// The documents that are held back from training, to be measured with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kakeya/types.h"

namespace kakeya::train {

enum class Part : std::uint8_t {
  kTraining,
  kHeldBack,
  kLeftOut,  // equal to one that is held back
};

// The part of each prompt: each tenth is held back, of fewer than ten the last one.
std::vector<Part> parts_of(std::span<const std::vector<TokenId>> prompts);

// Takes documents out of `training` that are held back as well: a model's short texts repeat.
void leave_out_held_back(std::vector<std::vector<TokenId>>& training,
                         std::span<const std::vector<TokenId>> held_back);

}  // namespace kakeya::train
