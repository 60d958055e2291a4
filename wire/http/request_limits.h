// Most of what a request for an answer may list, whatever its dialect.
#pragma once

#include <cstddef>

namespace kakeya::wire {

inline constexpr std::size_t kMostMessages = 4096;
inline constexpr std::size_t kMostTools = 1024;
inline constexpr std::size_t kMostValuesOfATool = 4096;  // a template walks over them

}  // namespace kakeya::wire
