// What a JSON text can cost, counted before anything of it is allocated.
#pragma once

#include <cstddef>
#include <string_view>

namespace kakeya {

struct JsonSize {
  std::size_t depth = 0;   // most brackets that are open at once
  std::size_t values = 1;  // at most: brackets that open, and commas, outside of texts
};

// Of any text: what is no JSON has some size as well.
JsonSize json_size(std::string_view text);

}  // namespace kakeya
