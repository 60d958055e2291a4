#include "service/grammar/pattern_rules.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "service/grammar/character_classes.h"
#include "service/grammar/limit_places.h"

namespace kakeya::service {
namespace {

constexpr int kMostGroups = 64;
constexpr std::size_t kMostPatternBytes = 16384;
// A class of more characters, or one that is repeated more often, is repeated by a limit, for rules
// of each count would cost seconds.
constexpr std::size_t kWideClass = 256;
constexpr std::int64_t kFewOfNarrow = 24;
constexpr std::int64_t kMostLeastOfWide = 64;
constexpr std::int64_t kMostOfWide = 65536;
constexpr std::string_view kExpectedOnePlace =
    "at most 64 repetitions of what can begin at several places of a text before it";
static_assert(kMostSpelledOut == 64);

CharRanges line_ends() {
  return {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
}

std::optional<char32_t> control_of(char32_t letter) {
  constexpr std::pair<char32_t, char32_t> kControls[] = {{'t', '\t'}, {'n', '\n'}, {'v', '\v'},
                                                         {'f', '\f'}, {'r', '\r'}, {'0', 0}};
  for (const auto& [name, code] : kControls) {
    if (letter == name) return code;
  }
  return {};
}

bool is_letter_or_digit(char32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

// Any number of them, in a tree.
Expression any_characters() {
  return {.kind = Expression::Kind::kCounted, .parts = {chars_of({{0, kLastChar}})}};
}

class PatternParser {
 public:
  // `json`: characters are written as values write them; null: as they are. `is_tree`: makes a tree
  // without rules, and reads look-ahead behind the ^ at the begin.
  PatternParser(Grammar& grammar,
                std::string_view pattern,
                const JsonRules* json,
                SpelledOut spelled_out,
                bool is_tree = false)
      : grammar_(grammar),
        pattern_(code_points(pattern)),
        json_(json),
        spelled_out_(std::move(spelled_out)),
        is_tree_(is_tree) {}

  // Texts that a whole text must be one of, or must not.
  struct LookAhead {
    Expression text;
    bool is_negative = false;
  };
  struct Pattern {
    Expression expression;
    bool from_begin = false;  // anchored
    bool to_end = false;
    LimitedRepetitions limited = {};
    std::vector<LookAhead> look_ahead = {};
  };

  Result<Pattern> parse() {
    Pattern parsed;
    parsed.from_begin = take('^');
    while (is_tree_ && parsed.from_begin && at_look_ahead()) {
      KAKEYA_ASSIGN_OR_RETURN(LookAhead one, look_ahead());
      parsed.look_ahead.push_back(std::move(one));
    }
    KAKEYA_ASSIGN_OR_RETURN(parsed.expression, alternatives(0));
    parsed.to_end = take('$');
    parsed.limited = std::move(limited_);
    if (!at_end()) return problem("the end");
    // Each alternative would have an anchor of its own.
    if (is_choice_ && (parsed.from_begin || parsed.to_end)) {
      at_ = 0;
      return problem("alternatives in a group between ^ and $");
    }
    return parsed;
  }

 private:
  bool at_end() const { return at_ >= pattern_.size(); }
  char32_t peek(std::size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : 0;
  }
  bool take(char32_t c) {
    if (at_end() || peek() != c) return false;
    ++at_;
    return true;
  }
  Unexpected problem(std::string_view expected) const {
    return error(StatusCode::kInvalidArgument, "regular expression: expected {} at character {}",
                 expected, at_ + 1);
  }

  bool at_look_ahead() const {
    return peek() == '(' && peek(1) == '?' && (peek(2) == '=' || peek(2) == '!');
  }

  Result<LookAhead> look_ahead() {
    const bool is_negative = peek(2) == '!';
    at_ += 3;
    in_look_ahead_ = true;
    is_negated_ = is_negative;
    std::vector<Expression> ways;
    do {
      KAKEYA_ASSIGN_OR_RETURN(Expression way, terms(1));
      ways.push_back(take('$') ? std::move(way) : sequence_of({std::move(way), any_characters()}));
    } while (take('|'));
    in_look_ahead_ = is_negated_ = false;
    if (!take(')')) return problem("a ')'");
    return LookAhead{choice_of(std::move(ways)), is_negative};
  }

  Result<Expression> alternatives(int depth) {
    if (depth > kMostGroups) return problem("fewer groups within groups");
    std::vector<Expression> ways;
    do {
      KAKEYA_ASSIGN_OR_RETURN(Expression way, terms(depth));
      ways.push_back(std::move(way));
    } while (take('|'));
    if (depth == 0) is_choice_ = ways.size() > 1;
    return choice_of(std::move(ways));
  }

  Result<Expression> terms(int depth) {
    std::vector<Expression> parts;
    while (!at_end() && peek() != '|' && peek() != ')') {
      if (peek() == '$' && depth == 0 && at_ + 1 == pattern_.size()) break;
      if (peek() == '$' && depth == 1 && in_look_ahead_) break;
      CharRanges ranges;  // of a class, for then its size tells how to repeat it
      KAKEYA_ASSIGN_OR_RETURN(const Expression part, atom(depth, ranges));
      KAKEYA_ASSIGN_OR_RETURN(Expression repeated, quantified(part, ranges));
      parts.push_back(std::move(repeated));
    }
    return sequence_of(std::move(parts));
  }

  Result<Expression> atom(int depth, CharRanges& ranges) {
    const char32_t c = peek();
    if (c == '^' || c == '$') return problem("anchors at both ends alone");
    if (c == '*' || c == '+' || c == '?' || c == '{') return problem("what is repeated before it");
    if (take('(')) return group(depth);
    if (take('[')) {
      KAKEYA_ASSIGN_OR_RETURN(ranges, bracketed());
    } else if (take('.')) {
      ranges = complement_of(line_ends());
    } else if (take('\\')) {
      KAKEYA_ASSIGN_OR_RETURN(ranges, escaped(false));
    } else {
      ++at_;
      ranges = {{c, c}};
    }
    return character(ranges);
  }

  Result<Expression> character(const CharRanges& ranges) const {
    Expression one = json_ != nullptr ? json_->character_of(normalized(ranges)) : chars_of(ranges);
    const bool none = one.kind == Expression::Kind::kChars ? one.ranges.empty() : one.parts.empty();
    if (none) return problem("a character that a text may have before it");
    return one;
  }

  Result<Expression> group(int depth) {
    if (take('?')) {
      const bool is_named = peek() == '<' && peek(1) != '=' && peek(1) != '!';
      if (is_named) {
        while (!at_end() && peek() != '>') ++at_;
        if (!take('>')) return problem("a '>' behind the group's name");
      } else if (!take(':')) {
        return problem("a group without look-around or flags");
      }
    }
    KAKEYA_ASSIGN_OR_RETURN(Expression inner, alternatives(depth + 1));
    if (!take(')')) return problem("a ')'");
    return inner;
  }

  Result<CharRanges> escaped(bool in_class) {
    if (at_end()) return problem("a character behind the '\\'");
    const char32_t c = pattern_[at_];
    if (auto known = class_of(c, is_negated_ ? Readers::kAny : Readers::kAll)) {
      ++at_;
      classes_.insert(c);
      return *std::move(known);
    }
    if (c == 'x' || c == 'u') {
      ++at_;
      KAKEYA_ASSIGN_OR_RETURN(const char32_t point, hexadecimal(c == 'x' ? 2 : 4));
      return CharRanges{{point, point}};
    }
    if (in_class && c == 'b') {
      ++at_;
      return CharRanges{{'\b', '\b'}};
    }
    const bool octal = c == '0' && peek(1) >= '0' && peek(1) <= '9';
    const auto control = octal ? std::nullopt : control_of(c);
    if (!control && is_letter_or_digit(c)) {
      return problem("no back-reference, boundary or property");
    }
    ++at_;
    const char32_t point = control.value_or(c);
    return CharRanges{{point, point}};
  }

  // So many digits, or with \u any number in braces; two escapes of surrogates are one character.
  Result<char32_t> hexadecimal(int count) {
    const bool braced = count == 4 && take('{');
    char32_t point = 0;
    int read = 0;
    for (; (braced ? read < 6 : read < count) && !at_end(); ++read) {
      const char32_t c = peek();
      const char32_t lower = c | 0x20U;
      if (c >= '0' && c <= '9') {
        point = point * 16 + (c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        point = point * 16 + (lower - 'a' + 10);
      } else {
        break;
      }
      ++at_;
    }
    const bool whole = braced ? read > 0 && take('}') : read == count;
    if (!whole || point > kLastChar) return problem("hexadecimal digits of a character");
    if (point >= 0xD800 && point <= 0xDBFF && peek() == '\\' && peek(1) == 'u') {
      at_ += 2;
      KAKEYA_ASSIGN_OR_RETURN(const char32_t low, hexadecimal(4));
      if (low < 0xDC00 || low > 0xDFFF) return problem("the other half of a surrogate pair");
      return 0x10000 + ((point - 0xD800) << 10U) + (low - 0xDC00);
    }
    return point;
  }

  Result<CharRanges> bracketed() {
    const bool negated = take('^');
    if (negated) is_negated_ = !is_negated_;
    classes_.clear();
    CharRanges ranges;
    while (!take(']')) {
      if (at_end()) return problem("a ']'");
      KAKEYA_ASSIGN_OR_RETURN(const CharRanges first, class_member());
      const bool is_range = peek() == '-' && at_ + 1 < pattern_.size() && peek(1) != ']';
      if (!is_range) {
        ranges.insert(ranges.end(), first.begin(), first.end());
        continue;
      }
      ++at_;
      KAKEYA_ASSIGN_OR_RETURN(const CharRanges last, class_member());
      const bool of_two = count_of(first) == 1 && count_of(last) == 1;
      if (!of_two) {
        // Between classes, as in [\\w-.], it is a character.
        ranges.insert(ranges.end(), first.begin(), first.end());
        ranges.insert(ranges.end(), last.begin(), last.end());
        ranges.push_back({'-', '-'});
        continue;
      }
      if (first[0].first > last[0].first) return problem("a range in order before it");
      ranges.push_back({first[0].first, last[0].first});
    }
    if (negated) is_negated_ = !is_negated_;
    // A class and its opposite, as in [\s\S], are all characters to every reader.
    for (const char32_t letter : classes_) {
      if (classes_.contains(opposite_of(letter))) ranges = {{0, kLastChar}};
    }
    return negated ? complement_of(std::move(ranges)) : normalized(std::move(ranges));
  }

  Result<CharRanges> class_member() {
    if (at_end()) return problem("a ']'");
    if (take('\\')) return escaped(true);
    const char32_t c = pattern_[at_++];
    return CharRanges{{c, c}};
  }

  // The counts of a quantifier, if there is one.
  struct Counts {
    std::int64_t least = 1;
    std::optional<std::int64_t> most = 1;
  };
  Result<Counts> counts() {
    if (take('*')) return Counts{0, std::nullopt};
    if (take('+')) return Counts{1, std::nullopt};
    if (take('?')) return Counts{0, 1};
    if (!take('{')) return Counts{};
    Counts read;
    KAKEYA_ASSIGN_OR_RETURN(read.least, number());
    read.most = read.least;
    if (take(',')) {
      read.most.reset();
      if (peek() != '}') {
        KAKEYA_ASSIGN_OR_RETURN(read.most, number());
      }
    }
    if (!take('}')) return problem("a '}'");
    if (read.most && *read.most < read.least) return problem("counts in order before it");
    return read;
  }

  Result<std::int64_t> number() {
    std::int64_t value = 0;
    const std::size_t begin = at_;
    while (!at_end() && peek() >= '0' && peek() <= '9' && value <= kMostOfWide) {
      value = value * 10 + static_cast<std::int64_t>(pattern_[at_++] - '0');
    }
    if (at_ == begin || value > kMostOfWide) return problem("a smaller number");
    return value;
  }

  Result<Expression> quantified(const Expression& part, const CharRanges& ranges) {
    const std::size_t begin = at_;
    KAKEYA_ASSIGN_OR_RETURN(const Counts count, counts());
    if (at_ == begin) return part;
    take('?');  // a lazy one means the same texts
    if (peek() == '+' || peek() == '*') return problem("one quantifier");
    if (is_tree_) {
      return Expression{.kind = Expression::Kind::kCounted,
                        .parts = {part},
                        .least = count.least,
                        .most = count.most};
    }
    const std::int64_t extra = count.most.value_or(count.least) - count.least;
    const bool is_wide = count_of(normalized(ranges)) > kWideClass;
    const bool may_be_limited = !ranges.empty() && count.least <= kMostLeastOfWide;
    if (is_wide ? extra > 1 : may_be_limited && extra > kFewOfNarrow) {
      const bool is_limited = !spelled_out_.contains(limits_++);
      if (is_limited) return limited(part, count.least, extra);
      if (is_wide && extra > kMostSpelledOut) return problem(kExpectedOnePlace);
    }
    const bool is_counted = count.least > 1 || extra > 1;
    if (is_counted) repetitions_ += std::max(count.least, count.least + extra);
    if (repetitions_ > kMostRepetitions) return problem("fewer counted repetitions before it");
    return grammar_.repeated(part, count.least, count.most);
  }

  // `part`, of a wide class, `least` times and at most `extra` times more.
  Result<Expression> limited(const Expression& part, std::int64_t least, std::int64_t extra) {
    if (least > kMostLeastOfWide) return problem("a smaller least count before it");
    std::vector<Expression> parts(static_cast<std::size_t>(least), part);
    parts.push_back(grammar_.limited("up_to", grammar_.repeated(part, 0, std::nullopt), extra));
    limited_.emplace(parts.back().rule, limits_ - 1);
    return sequence_of(std::move(parts));
  }

  Grammar& grammar_;
  const std::u32string pattern_;
  const JsonRules* const json_;  // null: as they are
  const SpelledOut spelled_out_;
  const bool is_tree_;
  bool in_look_ahead_ = false;
  bool is_negated_ = false;          // in a class or a look-ahead of what must not be
  std::set<char32_t> classes_ = {};  // letters of \d and its like in the brackets so far
  std::size_t limits_ = 0;           // repetitions so far that limits may bound
  LimitedRepetitions limited_;
  std::size_t at_ = 0;
  bool is_choice_ = false;  // at the top
  std::int64_t repetitions_ = 0;
};

// The expression as it is found in a text: with any characters on each side that has no anchor.
Expression found_anywhere(PatternParser::Pattern found, const Expression& any) {
  std::vector<Expression> parts;
  if (!found.from_begin) parts.push_back(any);
  parts.push_back(std::move(found.expression));
  if (!found.to_end) parts.push_back(any);
  return sequence_of(std::move(parts));
}

Status check_size(std::string_view pattern) {
  if (pattern.size() <= kMostPatternBytes) return {};
  return error(StatusCode::kInvalidArgument,
               "regular expression: expected at most {} bytes, got {}", kMostPatternBytes,
               pattern.size());
}

Result<PatternParser::Pattern> parsed(Grammar& grammar,
                                      std::string_view pattern,
                                      const JsonRules* json,
                                      Effort& effort) {
  KAKEYA_TRY(check_size(pattern));
  const ReadLimited read = [&](Grammar& scratch, const SpelledOut& spelled_out,
                               LimitedRepetitions& limited) -> Result<Expression> {
    KAKEYA_ASSIGN_OR_RETURN(PatternParser::Pattern found,
                            PatternParser(scratch, pattern, json, spelled_out).parse());
    limited = std::move(found.limited);
    if (json == nullptr) return std::move(found.expression);
    const Expression any = scratch.repeated(json->character_of({{0, kLastChar}}), 0, std::nullopt);
    return found_anywhere(std::move(found), any);
  };
  auto spelled_out = repetitions_to_spell_out(read, effort);
  if (!spelled_out) return Unexpected(std::move(spelled_out).error());
  return PatternParser(grammar, pattern, json, *spelled_out).parse();
}

}  // namespace

Result<Expression> texts_that_match(Grammar& grammar, std::string_view pattern) {
  KAKEYA_ASSIGN_OR_RETURN(PatternParser::Pattern parsed_pattern,
                          parsed(grammar, pattern, nullptr, grammar.effort()));
  return std::move(parsed_pattern.expression);
}

Status check_pattern(std::string_view pattern, Effort& effort) {
  Grammar grammar;
  const JsonRules json(grammar);
  KAKEYA_TRY(parsed(grammar, pattern, &json, effort));
  return {};
}

Result<Expression> json_texts_that_match(Grammar& grammar,
                                         JsonRules& json,
                                         std::string_view pattern) {
  KAKEYA_ASSIGN_OR_RETURN(PatternParser::Pattern found,
                          parsed(grammar, pattern, &json, grammar.effort()));
  const bool is_anchored = found.from_begin && found.to_end;
  return found_anywhere(std::move(found), is_anchored ? text_of("") : json.characters());
}

Result<TextAutomaton> automaton_of(std::string_view pattern, Effort& effort) {
  KAKEYA_TRY(check_size(pattern));
  Grammar unused;
  KAKEYA_ASSIGN_OR_RETURN(PatternParser::Pattern found,
                          PatternParser(unused, pattern, nullptr, {}, true).parse());
  std::vector<PatternParser::LookAhead> look_ahead = std::move(found.look_ahead);
  KAKEYA_ASSIGN_OR_RETURN(
      TextAutomaton texts,
      TextAutomaton::of(found_anywhere(std::move(found), any_characters()), effort));
  for (const PatternParser::LookAhead& one : look_ahead) {
    KAKEYA_ASSIGN_OR_RETURN(const TextAutomaton ahead, TextAutomaton::of(one.text, effort));
    KAKEYA_ASSIGN_OR_RETURN(
        texts, texts.intersected(one.is_negative ? ahead.complement() : ahead, effort));
  }
  return texts;
}

}  // namespace kakeya::service
