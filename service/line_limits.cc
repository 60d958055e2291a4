#include "service/line_limits.h"

namespace kakeya::service {

bool LineGuard::push(std::string& text, std::size_t before) {
  const auto now = std::chrono::steady_clock::now();
  if (!first_) first_ = now;
  for (std::size_t i = before; i < text.size(); ++i) {
    const char c = text[i];
    if (in_indent_ && (c == ' ' || c == '\t')) {
      ++indent_;
      continue;
    }
    if (in_indent_ && indent_ < limits_.least_indent) {
      text.resize(i);
      return true;
    }
    in_indent_ = c == '\n';
    indent_ = 0;
    has_line_end_ = has_line_end_ || in_indent_;
  }
  return limits_.most_seconds > 0.0 && has_line_end_ &&
         std::chrono::duration<double>(now - *first_).count() > limits_.most_seconds;
}

}  // namespace kakeya::service
