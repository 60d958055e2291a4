// The library's version; the same as in CMakeLists.txt, which a test compares.
#pragma once

namespace kakeya {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace kakeya
