// The cost of a JSON text, counted before anything of it is allocated.
#pragma once

#include <cstddef>
#include <string_view>

namespace kakeya {

struct JsonSize {
  std::size_t depth = 0;   // most brackets that are open at once
  std::size_t values = 1;  // at most: brackets that open, and commas, outside of texts
};

// Counts any text: one that is no JSON has some size as well.
JsonSize json_size(std::string_view text);

}  // namespace kakeya
