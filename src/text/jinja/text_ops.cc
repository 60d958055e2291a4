#include "text/jinja/text_ops.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "text/utf8.h"

namespace kakeya::jinja {
namespace {

bool is_letter(char32_t code_point) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LT;
}

char32_t upper(char32_t code_point) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code_point)));
}

char32_t lower(char32_t code_point) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point)));
}

template <typename Change>
std::string map_characters(std::string_view text, const Change& change) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Step step = read_utf8(text, i);
    append_utf8(change(step.code_point), out);
    i += step.size;
  }
  return out;
}

bool contains_character(std::string_view set, char32_t code_point) {
  for (std::size_t i = 0; i < set.size();) {
    const Utf8Step step = read_utf8(set, i);
    if (step.code_point == code_point) return true;
    i += step.size;
  }
  return false;
}

std::size_t previous_character(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

bool is_printable(char32_t code_point) {
  if (code_point == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::vector<std::string> split_at_space(std::string_view text, std::int64_t max_splits) {
  std::vector<std::string> parts;
  text = strip(text, Side::kLeft);
  while (!text.empty()) {
    if (max_splits >= 0 && static_cast<std::int64_t>(parts.size()) == max_splits) {
      parts.emplace_back(strip(text, Side::kRight));
      break;
    }
    std::size_t end = 0;
    while (end < text.size()) {
      const Utf8Step step = read_utf8(text, end);
      if (is_python_space(step.code_point)) break;
      end += step.size;
    }
    parts.emplace_back(text.substr(0, end));
    text = strip(text.substr(end), Side::kLeft);
  }
  return parts;
}

}  // namespace

bool is_python_space(char32_t code_point) {
  return (code_point >= 0x09 && code_point <= 0x0D) || (code_point >= 0x1C && code_point <= 0x20) ||
         code_point == 0x85 || code_point == 0xA0 || code_point == 0x1680 ||
         (code_point >= 0x2000 && code_point <= 0x200A) || code_point == 0x2028 ||
         code_point == 0x2029 || code_point == 0x202F || code_point == 0x205F ||
         code_point == 0x3000;
}

std::string_view strip(std::string_view text,
                       Side side,
                       std::optional<std::string_view> characters) {
  const auto goes = [&](char32_t code_point) {
    return characters ? contains_character(*characters, code_point) : is_python_space(code_point);
  };
  while (side != Side::kRight && !text.empty()) {
    const Utf8Step step = read_utf8(text, 0);
    if (!goes(step.code_point)) break;
    text.remove_prefix(step.size);
  }
  while (side != Side::kLeft && !text.empty()) {
    const std::size_t begin = previous_character(text, text.size());
    if (!goes(read_utf8(text, begin).code_point)) break;
    text = text.substr(0, begin);
  }
  return text;
}

std::string to_upper(std::string_view text) {
  return map_characters(text, upper);
}

std::string to_lower(std::string_view text) {
  return map_characters(text, lower);
}

std::string capitalize(std::string_view text) {
  bool first = true;
  return map_characters(text, [&](char32_t code_point) {
    return std::exchange(first, false) ? upper(code_point) : lower(code_point);
  });
}

std::string to_title(std::string_view text) {
  bool inside_word = false;
  return map_characters(text, [&](char32_t code_point) {
    const bool goes_on = std::exchange(inside_word, is_letter(code_point));
    return goes_on ? lower(code_point) : upper(code_point);
  });
}

std::string title_words(std::string_view text) {
  bool begins = true;
  return map_characters(text, [&](char32_t code_point) {
    const bool separates =
        is_python_space(code_point) ||
        (code_point < 0x80 &&
         std::string_view("-({[<").find(static_cast<char>(code_point)) != std::string_view::npos);
    const bool first = std::exchange(begins, separates);
    return first && !separates ? upper(code_point) : lower(code_point);
  });
}

std::vector<std::string> split(std::string_view text,
                               std::optional<std::string_view> separator,
                               std::int64_t max_splits) {
  if (!separator) return split_at_space(text, max_splits);
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (max_splits < 0 || static_cast<std::int64_t>(parts.size()) < max_splits) {
    const std::size_t end = text.find(*separator, begin);
    if (end == std::string_view::npos) break;
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + separator->size();
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::vector<std::string> split_lines(std::string_view text) {
  const auto ends_line = [](char32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
  };
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Step step = read_utf8(text, i);
    const std::size_t end = i;
    i += step.size;
    if (!ends_line(step.code_point)) continue;
    if (step.code_point == '\r' && i < text.size() && text[i] == '\n') ++i;
    lines.emplace_back(text.substr(begin, end - begin));
    begin = i;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string replace(std::string_view text,
                    std::string_view from,
                    std::string_view to,
                    std::int64_t max_count) {
  std::string out;
  std::size_t begin = 0;
  for (std::int64_t count = 0; max_count < 0 || count < max_count; ++count) {
    if (from.empty()) {
      out += to;
      if (begin >= text.size()) return out;
      const std::size_t size = read_utf8(text, begin).size;
      out += text.substr(begin, size);
      begin += size;
      continue;
    }
    const std::size_t end = text.find(from, begin);
    if (end == std::string_view::npos) break;
    out.append(text.substr(begin, end - begin)).append(to);
    begin = end + from.size();
  }
  return out.append(text.substr(begin));
}

std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Step step = read_utf8(text, i);
    result.emplace_back(text.substr(i, step.size));
    i += step.size;
  }
  return result;
}

std::string format_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // Python writes a float with the fewest digits that give it back, and with an exponent only
  // outside of 1e-4 to 1e16.
  const double magnitude = std::abs(value);
  const bool plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string format_json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return format_float(value);
}

void append_quoted(std::string_view text, std::string& out) {
  const bool double_quotes =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  out += quote;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Step step = read_utf8(text, i);
    const char32_t c = step.code_point;
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += text.substr(i, step.size);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<unsigned>(c));
    }
    i += step.size;
  }
  out += quote;
}

namespace {

void append_json_escape(char32_t code_point, std::string& out) {
  const auto unit = static_cast<unsigned>(code_point);
  if (code_point < 0x10000) {
    out += fmt::format("\\u{:04x}", unit);
  } else {
    out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((unit - 0x10000) >> 10),
                       0xDC00 + ((unit - 0x10000) & 0x3FF));
  }
}

}  // namespace

void append_json_string(std::string_view text, bool ensure_ascii, std::string& out) {
  constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f";
  constexpr std::string_view kEscapes = "\"\\nrtbf";
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Step step = read_utf8(text, i);
    const char32_t c = step.code_point;
    const std::size_t short_form =
        c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
    if (short_form != std::string_view::npos) {
      out += '\\';
      out += kEscapes[short_form];
    } else if (c < 0x20 || (ensure_ascii && c > 0x7E)) {
      append_json_escape(c, out);
    } else {
      out += text.substr(i, step.size);
    }
    i += step.size;
  }
  out += '"';
}

}  // namespace kakeya::jinja
