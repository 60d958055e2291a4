// Operations on text as Python's str does them: by code point, with Unicode case and white space.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kakeya::jinja {

bool is_python_space(char32_t code_point);

enum class Side { kLeft, kRight, kBoth };

// strip, lstrip, rstrip; without `characters`, of white space.
std::string_view strip(std::string_view text,
                       Side side,
                       std::optional<std::string_view> characters = std::nullopt);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);
// str.title, where any letter after a non-letter starts a word.
std::string to_title(std::string_view text);

// jinja2's filter `title`: a word begins behind white space, a dash or an opening bracket.
std::string title_words(std::string_view text);

// str.split(separator, max_splits); without a separator, at runs of white space. max_splits < 0:
// all.
std::vector<std::string> split(std::string_view text,
                               std::optional<std::string_view> separator,
                               std::int64_t max_splits);
std::vector<std::string> split_lines(std::string_view text);

// str.replace; max_count < 0: all. An empty `from` matches between all characters.
std::string replace(std::string_view text,
                    std::string_view from,
                    std::string_view to,
                    std::int64_t max_count);

// The characters, one string each.
std::vector<std::string> characters(std::string_view text);

// repr of a float, and its form in json.dumps.
std::string format_float(double value);
std::string format_json_float(double value);

// repr of a string, with its quotes.
void append_quoted(std::string_view text, std::string& out);
void append_json_string(std::string_view text, bool ensure_ascii, std::string& out);

}  // namespace kakeya::jinja
