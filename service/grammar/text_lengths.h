// The length that a grammar's texts may have, and what has no end in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "service/grammar/grammar.h"

namespace kakeya::service {

struct TextLengths {
  // Characters of the longest text, a token as one; none: some rules go on for ever.
  std::optional<std::int64_t> most = {};
  // The hints of those rules: of each that leads to itself without a limited rule, and of what is
  // repeated without a limit. In order, each once.
  std::vector<std::string> endless = {};
};

TextLengths lengths_of(const Grammar& grammar);

}  // namespace kakeya::service
