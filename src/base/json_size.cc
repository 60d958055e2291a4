#include "base/json_size.h"

#include <algorithm>

namespace kakeya {

JsonSize json_size(std::string_view text) {
  JsonSize size;
  std::size_t depth = 0;
  bool in_text = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char byte = text[at];
    if (in_text) {
      if (byte == '\\') ++at;
      if (byte == '"') in_text = false;
      continue;
    }
    if (byte == '"') in_text = true;
    if (byte == ']' || byte == '}') depth -= depth > 0 ? 1 : 0;
    if (byte == '[' || byte == '{') {
      ++size.values;
      size.depth = std::max(size.depth, ++depth);
    }
    if (byte == ',') ++size.values;
  }
  return size;
}

}  // namespace kakeya
