// Which layers of a target a DFlash drafter taps when no list says so. Pure arithmetic.
#pragma once

#include <cstdint>
#include <vector>

namespace kakeya {

// `count` layers from `first` to `last`, both included, at even distances; rounded half to even.
// Needs count >= 2 and last - first >= count - 1; then they are distinct and ascending.
std::vector<std::int64_t> spread_taps(std::int64_t first, std::int64_t last, std::int64_t count);

// True if default_taps() has `count` distinct layers to give.
bool has_default_taps(std::int64_t target_layers, std::int64_t count);

// The taps as the published training code chooses them: the middle layer for a count of 1,
// otherwise from layer 1 to layer target_layers - 3. Needs has_default_taps().
std::vector<std::int64_t> default_taps(std::int64_t target_layers, std::int64_t count);

}  // namespace kakeya
