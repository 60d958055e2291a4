#include "formats/printable.h"

#include <fmt/format.h>

#include <iterator>

namespace kakeya {

namespace {
constexpr std::size_t kMaxLength = 160;
}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  for (const char character : text) {
    if (result.size() >= kMaxLength) return result + "...";
    if (character >= ' ' && character <= '~') {
      result.push_back(character);
    } else {
      fmt::format_to(std::back_inserter(result), "\\x{:02x}",
                     static_cast<unsigned>(static_cast<unsigned char>(character)));
    }
  }
  return result;
}

}  // namespace kakeya
