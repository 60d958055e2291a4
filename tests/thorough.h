// Short forms of long tests: loops are shorter, and of combinations of options some are run, each
// option in one at least. `make check` sets KAKEYA_THOROUGH=1 and runs them all.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <string_view>

namespace kakeya::test {

inline bool thorough() {
  const char* value = std::getenv("KAKEYA_THOROUGH");
  return value != nullptr && std::string_view(value) == "1";
}

// One of two numbers: the length of a loop, or its step.
inline int by_form(int brief, int in_full) {
  return thorough() ? in_full : brief;
}

// Says whether a combination of options, given by their indices added up, is run: one of `one_of`.
inline bool is_run(std::size_t sum_of_indices, std::size_t one_of) {
  return thorough() || sum_of_indices % one_of == 0;
}

}  // namespace kakeya::test
