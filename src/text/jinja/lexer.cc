#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/status.h"
#include "text/jinja/text_ops.h"
#include "text/utf8.h"

namespace kakeya::jinja {

Unexpected syntax_error(int line, std::string_view message) {
  return invalid_argument("[chat template] line {}: {}", line, message);
}

namespace {

// Names are compared with others all the time.
constexpr std::size_t kMaxNameBytes = 1024;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_ascii_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

// Longest first. "**" is one only to be refused by its name.
constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "(",
    ")",  "[",  "]",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}

  Result<std::vector<Token>> run() {
    while (position_ < source_.size()) KAKEYA_TRY(lex_text_and_tag());
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(position_); }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void advance(std::size_t count) {
    const std::string_view passed = rest().substr(0, count);
    line_ += static_cast<int>(std::ranges::count(passed, '\n'));
    if (!passed.empty()) at_line_start_ = passed.back() == '\n';
    position_ += count;
  }

  bool skip(std::string_view expected) {
    if (!rest().starts_with(expected)) return false;
    advance(expected.size());
    return true;
  }

  void skip_space() {
    const std::string_view text = rest();
    advance(text.size() - strip(text, Side::kLeft).size());
  }

  // The next of {{ {% {#; the size of the rest if there is none.
  std::size_t find_tag() const {
    const std::string_view text = rest();
    for (std::size_t i = text.find('{'); i != std::string_view::npos; i = text.find('{', i + 1)) {
      const char next = i + 1 < text.size() ? text[i + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return i;
    }
    return text.size();
  }

  // The text before a tag, with what the tag strips of it taken away.
  std::string_view strip_before(std::string_view text, char tag, char sign) const {
    if (sign == '-') return strip(text, Side::kRight);
    if (sign == '+' || tag == '{') return text;
    const std::size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !at_line_start_) return text;
    const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (!strip(text.substr(line_begin), Side::kLeft).empty()) return text;
    return text.substr(0, line_begin);
  }

  Status lex_text_and_tag() {
    const std::size_t size = find_tag();
    const std::string_view text = rest().substr(0, size);
    if (size == rest().size()) {
      if (!text.empty()) add(TokenKind::kText, std::string(text));
      advance(size);
      return {};
    }
    const char tag = rest()[size + 1];
    const char after = size + 2 < rest().size() ? rest()[size + 2] : '\0';
    const char sign = after == '-' || after == '+' ? after : '\0';
    const std::string_view kept = strip_before(text, tag, sign);
    if (!kept.empty()) add(TokenKind::kText, std::string(kept));
    advance(size + (sign == '\0' ? 2 : 3));
    if (tag == '#') return lex_comment();
    if (tag == '%' && is_raw_tag()) return lex_raw();
    return lex_code(tag == '{');
  }

  // Passes what follows a tag: with '-' all white space, else one newline after a block or comment.
  void strip_after(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && rest().starts_with('\n')) {
      advance(1);
    }
  }

  Status lex_comment() {
    const int line = line_;
    const std::size_t end = rest().find("#}");
    if (end == std::string_view::npos) return syntax_error(line, "a comment is not closed");
    const char sign = end > 0 ? rest()[end - 1] : '\0';
    advance(end + 2);
    strip_after(sign);
    return {};
  }

  bool is_raw_tag() const { return !raw_tag_end("raw", rest()).empty(); }

  // The part of `text` that is a tag `name` up to its %}, or nothing if it is no such tag.
  static std::string_view raw_tag_end(std::string_view name, std::string_view text) {
    std::string_view tail = strip(text, Side::kLeft);
    if (!tail.starts_with(name)) return {};
    tail = strip(tail.substr(name.size()), Side::kLeft);
    if (tail.starts_with('-') || tail.starts_with('+')) tail.remove_prefix(1);
    if (!tail.starts_with("%}")) return {};
    return text.substr(0, text.size() - tail.size() + 2);
  }

  Status lex_raw() {
    const int line = line_;
    const std::string_view tag = raw_tag_end("raw", rest());
    const bool strips = tag[tag.size() - 3] == '-';
    advance(tag.size());
    if (strips) skip_space();
    const std::string_view body = rest();
    for (std::size_t i = body.find("{%"); i != std::string_view::npos; i = body.find("{%", i + 1)) {
      std::size_t inner = i + 2;
      const char sign = inner < body.size() ? body[inner] : '\0';
      if (sign == '-' || sign == '+') ++inner;
      const std::string_view end_tag = raw_tag_end("endraw", body.substr(inner));
      if (end_tag.empty()) continue;
      const std::string_view kept = strip_before(body.substr(0, i), '%', sign);
      if (!kept.empty()) add(TokenKind::kText, std::string(kept));
      const char end_sign = end_tag[end_tag.size() - 3];
      advance(inner + end_tag.size());
      strip_after(end_sign);
      return {};
    }
    return syntax_error(line, "a raw block is not closed");
  }

  // The size of the end of the tag if it is here, else 0.
  std::size_t match_code_end(bool is_output) const {
    const std::string_view end = is_output ? "}}" : "%}";
    const std::string_view text = rest();
    if (text.starts_with(end)) return 2;
    const bool has_sign = text.starts_with('-') || (text.starts_with('+') && !is_output);
    return has_sign && text.substr(1).starts_with(end) ? 3 : 0;
  }

  Status lex_code(bool is_output) {
    const int line = line_;
    add(is_output ? TokenKind::kOutputBegin : TokenKind::kBlockBegin, "");
    std::string open_brackets;
    while (position_ < source_.size()) {
      const std::size_t end_size = open_brackets.empty() ? match_code_end(is_output) : 0;
      if (end_size > 0) {
        const char sign = end_size == 3 ? rest()[0] : '\0';
        advance(end_size);
        add(is_output ? TokenKind::kOutputEnd : TokenKind::kBlockEnd, "");
        if (!is_output || sign == '-') strip_after(sign);
        return {};
      }
      if (is_ascii_space(rest()[0])) {
        advance(1);
      } else {
        KAKEYA_TRY(lex_token(open_brackets));
      }
    }
    return syntax_error(line, "a tag is not closed");
  }

  Status lex_token(std::string& open_brackets) {
    const char c = rest()[0];
    if (is_digit(c)) return lex_number();
    if (c == '"' || c == '\'') return lex_string();
    if (is_name_start(c)) {
      std::size_t size = 1;
      while (size < rest().size() && (is_name_start(rest()[size]) || is_digit(rest()[size])))
        ++size;
      if (size > kMaxNameBytes) {
        return syntax_error(line_, fmt::format("a name exceeds {} bytes", kMaxNameBytes));
      }
      add(TokenKind::kName, std::string(rest().substr(0, size)));
      advance(size);
      return {};
    }
    for (const std::string_view candidate : kOperators) {
      if (!rest().starts_with(candidate)) continue;
      KAKEYA_TRY(track_brackets(c, open_brackets));
      add(TokenKind::kOperator, std::string(candidate));
      advance(candidate.size());
      return {};
    }
    const Utf8Step step = read_utf8(source_, position_);
    return syntax_error(line_,
                        fmt::format("unexpected character '{}'", rest().substr(0, step.size)));
  }

  Status track_brackets(char c, std::string& open_brackets) const {
    constexpr std::string_view kOpening = "([{";
    constexpr std::string_view kClosing = ")]}";
    if (kOpening.find(c) != std::string_view::npos) open_brackets += c;
    const std::size_t closing = kClosing.find(c);
    if (closing == std::string_view::npos) return {};
    if (open_brackets.empty() || open_brackets.back() != kOpening[closing]) {
      return syntax_error(line_, fmt::format("unexpected '{}'", c));
    }
    open_brackets.pop_back();
    return {};
  }

  Status lex_number() {
    std::string digits;
    std::size_t size = 0;
    bool is_float = false;
    const auto at = [&](std::size_t i) { return i < rest().size() ? rest()[i] : '\0'; };
    const auto take_digits = [&] {
      while (is_digit(at(size)) || (at(size) == '_' && is_digit(at(size + 1)))) {
        if (at(size) != '_') digits += at(size);
        ++size;
      }
    };
    take_digits();
    if (at(size) == '.' && is_digit(at(size + 1))) {
      is_float = true;
      digits += at(size++);
      take_digits();
    }
    const std::size_t sign_size = at(size + 1) == '+' || at(size + 1) == '-' ? 1 : 0;
    if ((at(size) == 'e' || at(size) == 'E') && is_digit(at(size + 1 + sign_size))) {
      is_float = true;
      digits += rest().substr(size, 1 + sign_size);
      size += 1 + sign_size;
      take_digits();
    }
    if (is_name_start(at(size))) return syntax_error(line_, "a number runs into a name");
    add(is_float ? TokenKind::kFloat : TokenKind::kInteger, digits);
    advance(size);
    return {};
  }

  Status lex_string() {
    const int line = line_;
    const char quote = rest()[0];
    std::string value;
    std::size_t i = 1;
    for (; i < rest().size() && rest()[i] != quote; ++i) {
      if (rest()[i] != '\\') {
        value += rest()[i];
        continue;
      }
      if (++i >= rest().size()) break;
      if (!append_escape(i, value)) return syntax_error(line, "a bad escape in a string");
    }
    if (i >= rest().size()) return syntax_error(line, "a string is not closed");
    add(TokenKind::kString, std::move(value));
    advance(i + 1);
    return {};
  }

  // Appends the character that the escape at rest()[i] stands for; i is left at its last byte.
  bool append_escape(std::size_t& i, std::string& out) const {
    constexpr std::string_view kNames = "ntrabfv\\'\"";
    constexpr std::string_view kValues = "\n\t\r\a\b\f\v\\'\"";
    const char c = rest()[i];
    const std::size_t simple = kNames.find(c);
    if (simple != std::string_view::npos) {
      out += kValues[simple];
      return true;
    }
    if (c == '\n') return true;
    if (c >= '0' && c <= '7') return append_code_point(i, 3, 8, out);
    if (c == 'x') return append_code_point(++i, 2, 16, out);
    if (c == 'u') return append_code_point(++i, 4, 16, out);
    if (c == 'U') return append_code_point(++i, 8, 16, out);
    out += '\\';
    out += c;
    return true;
  }

  // Octal escapes may be shorter than `size`.
  bool append_code_point(std::size_t& i, std::size_t size, int base, std::string& out) const {
    const std::string_view digits = rest().substr(std::min(i, rest().size()), size);
    std::uint32_t value = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    const auto used = static_cast<std::size_t>(parsed.ptr - digits.data());
    if (parsed.ec != std::errc() || (base == 16 && used != size)) return false;
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return false;
    append_utf8(value, out);
    i += used - 1;
    return true;
  }

  std::string source_;
  std::size_t position_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace kakeya::jinja
