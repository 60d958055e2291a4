// Text inside of HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace kakeya::eval {

// As text or between double quotes: nothing in it can end either. Control characters are left out.
inline std::string escape_markup(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '<':
        safe += "&lt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= ' ') safe += c;
    }
  }
  return safe;
}

}  // namespace kakeya::eval
