#include "service/grammar/grammar_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "service/grammar/limit_places.h"

namespace kakeya::service {
namespace {

constexpr std::size_t kMostGrammarBytes = 65536;
constexpr int kMostNesting = 64;
constexpr std::int64_t kMostRepeated = 4096;
constexpr std::int64_t kFew = 16;
// A class of more characters that may come more often is repeated by a limit: masks are cheap then.
constexpr std::size_t kWide = 256;
constexpr std::int64_t kMostOfNarrow = 256;

bool is_name_start(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}
bool is_name(char c) {
  return is_name_start(c) || (c >= '0' && c <= '9') || c == '-' || c == '.';
}

class GrammarReader {
 public:
  GrammarReader(Grammar& grammar, std::string_view text, const SpelledOut& spelled_out)
      : grammar_(grammar), text_(text), spelled_out_(spelled_out) {}

  const LimitedRepetitions& limited() const { return limited_; }

  Result<Expression> read() {
    skip_blanks();
    while (!at_end()) KAKEYA_TRY(rule());
    for (const auto& [name, known] : rules_) {
      if (known.defined) continue;
      at_ = known.first_use;
      return problem(fmt::format("a rule '{}'", name));
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) return problem("a rule 'root'");
    return rule_of(root->second.rule);
  }

 private:
  struct Known {
    RuleId rule = 0;
    std::size_t first_use = 0;
    bool defined = false;
  };

  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool take(char c) {
    if (at_end() || peek() != c) return false;
    ++at_;
    return true;
  }
  Unexpected problem(std::string_view expected) const {
    const std::string_view before = text_.substr(0, std::min(at_, text_.size()));
    const std::size_t line_begin = before.rfind('\n') + 1;  // 0 where there is none
    return error(StatusCode::kInvalidArgument, "grammar: expected {} at line {}, column {}",
                 expected, std::ranges::count(before, '\n') + 1, before.size() - line_begin + 1);
  }

  void skip_blanks() {
    while (!at_end()) {
      const char c = peek();
      if (c == '#') {
        while (!at_end() && peek() != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view take_name() {
    const std::size_t begin = at_;
    if (!at_end() && is_name_start(peek())) {
      while (!at_end() && is_name(peek())) ++at_;
    }
    const std::string_view name = text_.substr(begin, at_ - begin);
    skip_blanks();
    return name;
  }
  bool take_defines() {
    if (!text_.substr(at_).starts_with("::=")) return false;
    at_ += 3;
    skip_blanks();
    return true;
  }
  // True where the next rule begins.
  bool at_rule() {
    const std::size_t begin = at_;
    const bool is_rule = !take_name().empty() && take_defines();
    at_ = begin;
    return is_rule;
  }

  Known& known(std::string_view name, std::size_t where) {
    const auto [found, is_new] = rules_.try_emplace(std::string(name));
    if (is_new) found->second = {.rule = grammar_.declare("own"), .first_use = where};
    return found->second;
  }

  Status rule() {
    const std::size_t begin = at_;
    const std::string_view name = take_name();
    if (name.empty() || !take_defines()) return problem("a rule: NAME ::= ...");
    Known& own = known(name, begin);
    if (std::exchange(own.defined, true)) {
      at_ = begin;
      return problem(fmt::format("one rule '{}'", name));
    }
    const RuleId id = own.rule;
    KAKEYA_ASSIGN_OR_RETURN(Expression body, alternatives(0));
    grammar_.define(id, std::move(body));
    if (!at_end() && !at_rule()) return problem("an element, '|' or the next rule");
    return {};
  }

  Result<Expression> alternatives(int depth) {
    if (depth > kMostNesting) return problem("fewer groups within groups");
    std::vector<Expression> ways;
    do {
      skip_blanks();
      KAKEYA_ASSIGN_OR_RETURN(Expression way, elements(depth));
      ways.push_back(std::move(way));
    } while (take('|'));
    return choice_of(std::move(ways));
  }

  Result<Expression> elements(int depth) {
    std::vector<Expression> parts;
    while (!at_end() && peek() != '|' && peek() != ')' && !at_rule()) {
      KAKEYA_ASSIGN_OR_RETURN(const Expression part, element(depth));
      KAKEYA_ASSIGN_OR_RETURN(Expression repeated, quantified(part));
      parts.push_back(std::move(repeated));
      skip_blanks();
    }
    return sequence_of(std::move(parts));
  }

  Result<Expression> element(int depth) {
    if (take('"')) return text();
    if (take('[')) return character_class();
    if (take('.')) return chars_of({{0, kLastChar}});
    if (take('(')) {
      KAKEYA_ASSIGN_OR_RETURN(Expression inner, alternatives(depth + 1));
      if (!take(')')) return problem("a ')'");
      return inner;
    }
    const std::size_t begin = at_;
    const std::size_t after_name = [&] {
      while (!at_end() && (at_ == begin ? is_name_start(peek()) : is_name(peek()))) ++at_;
      return at_;
    }();
    if (after_name == begin) return problem("a text in quotes, a class, a name or a group");
    return rule_of(known(text_.substr(begin, after_name - begin), begin).rule);
  }

  Result<Expression> text() {
    std::string out;
    while (!take('"')) {
      if (at_end() || peek() == '\n') return problem("a closing quote");
      if (peek() == '\\') {
        KAKEYA_ASSIGN_OR_RETURN(const char32_t c, character());
        append_utf8(out, c);
      } else {
        out += text_[at_++];
      }
    }
    return text_of(out);
  }

  static void append_utf8(std::string& out, char32_t c) {
    const auto tail = [&](unsigned shift) {
      out += static_cast<char>(0x80U | ((c >> shift) & 0x3FU));
    };
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (c < 0x800) {
      out += static_cast<char>(0xC0U | (c >> 6U));
      tail(0);
    } else if (c < 0x10000) {
      out += static_cast<char>(0xE0U | (c >> 12U));
      tail(6);
      tail(0);
    } else {
      out += static_cast<char>(0xF0U | (c >> 18U));
      tail(12);
      tail(6);
      tail(0);
    }
  }

  Result<Expression> character_class() {
    const bool negated = take('^');
    CharRanges ranges;
    while (!take(']')) {
      if (at_end() || peek() == '\n') return problem("a ']'");
      KAKEYA_ASSIGN_OR_RETURN(const char32_t first, character());
      char32_t last = first;
      const bool is_range = peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
      if (is_range) {
        ++at_;
        KAKEYA_ASSIGN_OR_RETURN(last, character());
      }
      if (last < first) return problem("a range in order before it");
      ranges.push_back({first, last});
    }
    ranges = negated ? complement_of(std::move(ranges)) : normalized(std::move(ranges));
    if (ranges.empty()) return problem("a class with a character before it");
    return chars_of(std::move(ranges));
  }

  // One character, maybe written as an escape.
  Result<char32_t> character() {
    if (at_end()) return problem("a character");
    if (!take('\\')) {
      const std::size_t size = character_bytes(peek());
      const std::u32string one = code_points(text_.substr(at_, size));
      at_ += size;
      return one.front();
    }
    const char letter = peek();
    ++at_;
    constexpr std::pair<char, char32_t> kControls[] = {
        {'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'b', '\b'}, {'f', '\f'}, {'v', '\v'}, {'0', 0}};
    for (const auto& [name, code] : kControls) {
      if (letter == name) return code;
    }
    if (letter == 'x') return hexadecimal(2);
    if (letter == 'u') return hexadecimal(4);
    if (letter == 'U') return hexadecimal(8);
    if (is_name(letter) && letter != '-' && letter != '.') {
      return problem("an escape: \\n, \\t, \\xHH, \\uHHHH or a character that means something");
    }
    return static_cast<char32_t>(static_cast<unsigned char>(letter));
  }

  Result<char32_t> hexadecimal(int count) {
    char32_t point = 0;
    for (int i = 0; i < count; ++i) {
      const char c = peek();
      const char lower = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        point = point * 16 + static_cast<char32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        point = point * 16 + static_cast<char32_t>(lower - 'a' + 10);
      } else {
        return problem(fmt::format("{} hexadecimal digits", count));
      }
      ++at_;
    }
    const bool is_character = point <= kLastChar && (point < 0xD800 || point > 0xDFFF);
    if (!is_character) return problem("a Unicode character before it");
    return point;
  }

  Result<Expression> quantified(const Expression& part) {
    std::int64_t least = 0;
    std::optional<std::int64_t> most;
    if (take('?')) {
      most = 1;
    } else if (take('+')) {
      least = 1;
    } else if (take('{')) {
      KAKEYA_TRY(counts(least, most));
    } else if (!take('*')) {
      return part;
    }
    if (peek() == '*' || peek() == '+' || peek() == '?') return problem("one quantifier");
    return repeated(part, least, most);
  }

  Status counts(std::int64_t& least, std::optional<std::int64_t>& most) {
    if (peek() != ',') {
      KAKEYA_ASSIGN_OR_RETURN(least, number());
    }
    if (!take(',')) {
      most = least;
    } else if (peek() != '}') {
      KAKEYA_ASSIGN_OR_RETURN(most, number());
    }
    if (!take('}')) return problem("a '}'");
    if (most && *most < least) return problem("counts in order before it");
    return {};
  }

  Result<std::int64_t> number() {
    std::int64_t value = 0;
    const std::size_t begin = at_;
    while (!at_end() && peek() >= '0' && peek() <= '9' && value <= kMostRepeated) {
      value = value * 10 + (text_[at_++] - '0');
    }
    if (at_ == begin || value > kMostRepeated) {
      return problem(fmt::format("a number up to {}", kMostRepeated));
    }
    return value;
  }

  Result<Expression> repeated(const Expression& part,
                              std::int64_t least,
                              std::optional<std::int64_t> most) {
    const std::int64_t largest = std::max(least, most.value_or(0));
    counted_ += largest;
    if (counted_ > kMostRepeated) return problem("fewer repetitions before it");
    const bool is_class = part.kind == Expression::Kind::kChars;
    if (largest <= kFew) return grammar_.repeated(part, least, most);
    if (!is_class) return grammar_.counted(part, least, most);
    if (count_of(part.ranges) <= kWide || least > kMostOfNarrow) {
      if (largest > kMostOfNarrow) {
        return problem(fmt::format("at most {} of a class before it", kMostOfNarrow));
      }
      return grammar_.repeated(part, least, most);
    }
    const bool is_spelled_out = most && spelled_out_.contains(wide_++);
    if (is_spelled_out && *most - least > kMostSpelledOut) {
      return problem(
          fmt::format("at most {} of a class whose repetition can begin at several places of a "
                      "text before it",
                      kMostSpelledOut));
    }
    if (is_spelled_out) return grammar_.repeated(part, least, most);
    Expression any = grammar_.repeated(part, 0, std::nullopt);
    if (most) {
      any = grammar_.limited("up_to", std::move(any), *most - least);
      limited_.emplace(any.rule, wide_ - 1);
    }
    std::vector<Expression> parts(static_cast<std::size_t>(least), part);
    parts.push_back(std::move(any));
    return sequence_of(std::move(parts));
  }

  Grammar& grammar_;
  const std::string_view text_;
  std::size_t at_ = 0;
  std::map<std::string, Known> rules_;
  const SpelledOut& spelled_out_;
  std::size_t wide_ = 0;  // limited repetitions of wide classes so far
  LimitedRepetitions limited_;
  std::int64_t counted_ = 0;
};

}  // namespace

Result<Expression> read_grammar(Grammar& grammar, std::string_view text) {
  if (text.size() > kMostGrammarBytes) {
    return error(StatusCode::kInvalidArgument, "grammar: expected at most {} bytes, got {}",
                 kMostGrammarBytes, text.size());
  }
  auto spelled_out = repetitions_to_spell_out(
      [text](Grammar& scratch, const SpelledOut& spelled, LimitedRepetitions& limited) {
        GrammarReader reader(scratch, text, spelled);
        auto root = reader.read();
        limited = reader.limited();
        return root;
      },
      grammar.effort());
  if (!spelled_out) return Unexpected(std::move(spelled_out).error());
  return GrammarReader(grammar, text, *spelled_out).read();
}

}  // namespace kakeya::service
