#include "service/grammar/grammar.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "base/status.h"

namespace kakeya::service {
namespace {

constexpr CharRange kSurrogates = {.first = 0xD800, .last = 0xDFFF};

using Part = Expression::Kind;

bool is_plain(char32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

// A code point as a text or a class has it.
std::string shown(char32_t c) {
  if (is_plain(c)) return {static_cast<char>(c)};
  return fmt::format("\\U{:08x}", static_cast<std::uint32_t>(c));
}

std::size_t size_of(const Expression& expression) {
  std::size_t size = 1 + expression.ranges.size() + expression.text.size();
  for (const Expression& part : expression.parts) size += size_of(part);
  return size;
}

bool is_empty(const Expression& expression) {
  return expression.kind == Part::kText && expression.text.empty();
}

// True if some finite text meets it, where those of the rules that do are marked.
bool is_productive(const Expression& expression, const std::vector<bool>& productive) {
  const auto part = [&](const Expression& one) { return is_productive(one, productive); };
  switch (expression.kind) {
    case Part::kText:
    case Part::kToken:
      return true;
    case Part::kChars:
      return !expression.ranges.empty();
    case Part::kRule:
      return productive[expression.rule];
    case Part::kSequence:
      return std::ranges::all_of(expression.parts, part);
    case Part::kChoice:
      return std::ranges::any_of(expression.parts, part);
    case Part::kCounted:
      return expression.least == 0 || part(expression.parts.front());
    case Part::kFree:
      return true;
  }
  return false;
}

// Leaves out unproductive choices of a productive expression.
void drop_unproductive(Expression& expression, const std::vector<bool>& productive) {
  if (expression.kind == Part::kChoice) {
    std::erase_if(expression.parts,
                  [&](const Expression& part) { return !is_productive(part, productive); });
  }
  if (expression.kind == Part::kCounted && !is_productive(expression.parts.front(), productive)) {
    expression = text_of("");  // no times
  }
  for (Expression& part : expression.parts) drop_unproductive(part, productive);
}

}  // namespace

std::size_t character_bytes(char first) {
  const auto lead = static_cast<unsigned char>(first);
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

std::u32string code_points(std::string_view text) {
  std::u32string points;
  for (std::size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const std::size_t size = character_bytes(text[at]);
    char32_t point = size == 1 ? lead : lead & (0x7FU >> size);
    for (std::size_t i = 1; i < size && at + i < text.size(); ++i) {
      point = (point << 6U) | (static_cast<unsigned char>(text[at + i]) & 0x3FU);
    }
    points.push_back(point);
    at += size;
  }
  return points;
}

CharRanges normalized(CharRanges ranges) {
  std::ranges::sort(ranges, {}, &CharRange::first);
  CharRanges merged;
  for (const CharRange& range : ranges) {
    if (range.first > range.last) continue;
    if (!merged.empty() && range.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  CharRanges sound;
  for (const CharRange& range : merged) {
    if (range.first < kSurrogates.first) {
      sound.push_back({range.first, std::min(range.last, char32_t{0xD7FF})});
    }
    if (range.last > kSurrogates.last) {
      sound.push_back({std::max(range.first, char32_t{0xE000}), range.last});
    }
  }
  return sound;
}

CharRanges complement_of(CharRanges ranges) {
  CharRanges others;
  char32_t next = 0;
  for (const CharRange& range : normalized(std::move(ranges))) {
    if (range.first > next) others.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastChar) others.push_back({next, kLastChar});
  return normalized(std::move(others));
}

CharRanges common_to(const CharRanges& one, const CharRanges& other) {
  CharRanges common;
  for (const CharRange& a : one) {
    for (const CharRange& b : other) {
      common.push_back({std::max(a.first, b.first), std::min(a.last, b.last)});
    }
  }
  return normalized(std::move(common));
}

std::size_t count_of(const CharRanges& ranges) {
  std::size_t count = 0;
  for (const CharRange& range : ranges) count += range.last - range.first + 1;
  return count;
}

Expression text_of(std::string_view text) {
  return {.kind = Part::kText, .text = std::string(text)};
}

Expression chars_of(CharRanges ranges) {
  return {.kind = Part::kChars, .ranges = normalized(std::move(ranges))};
}

Expression rule_of(RuleId rule) {
  return {.kind = Part::kRule, .rule = rule};
}

Expression token_of(TokenId token) {
  return {.kind = Part::kToken, .token = token};
}

Expression sequence_of(std::vector<Expression> parts) {
  std::erase_if(parts, is_empty);
  if (parts.empty()) return text_of("");
  if (parts.size() == 1) return std::move(parts.front());
  return {.kind = Part::kSequence, .parts = std::move(parts)};
}

Expression choice_of(std::vector<Expression> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return {.kind = Part::kChoice, .parts = std::move(parts)};
}

Expression never() {
  return {.kind = Part::kChoice};
}

Expression optional_of(Expression expression) {
  return choice_of({text_of(""), std::move(expression)});
}

Grammar::Grammar() {
  rules_.push_back({.name = "top", .body = text_of("")});
}

RuleId Grammar::declare(std::string_view hint) {
  rules_.push_back({.name = fmt::format("{}_{}", hint, rules_.size()), .body = text_of("")});
  return rules_.size() - 1;
}

Expression Grammar::shared(std::string_view hint, Expression body) {
  const auto [known, is_new] = by_body_.try_emplace(printed(body, false), rules_.size());
  if (is_new) define(declare(hint), std::move(body));
  return rule_of(known->second);
}

Expression Grammar::limited(std::string_view hint, Expression body, std::int64_t most) {
  const RuleId rule = declare(hint);
  define(rule, std::move(body));
  rules_[rule].most_chars = most;
  return rule_of(rule);
}

Expression Grammar::repeated(const Expression& expression,
                             std::int64_t least,
                             std::optional<std::int64_t> most) {
  const bool is_large = expression.kind == Part::kSequence || expression.kind == Part::kChoice;
  const bool is_copied = least > 1 || most.value_or(0) > 1;
  const Expression one = is_large && is_copied ? shared("part", expression) : expression;
  std::vector<Expression> parts(static_cast<std::size_t>(least), one);
  if (!most) {
    const RuleId rule = declare("any");
    std::vector<Expression> choices = {text_of("")};
    // Choices within a repetition are ways to go on: a rule of their own would cost masks dearly.
    const bool is_choice = expression.kind == Part::kChoice;
    for (const Expression& way :
         is_choice ? expression.parts : std::vector<Expression>{expression}) {
      if (!is_empty(way)) choices.push_back(sequence_of({way, rule_of(rule)}));
    }
    define(rule, choice_of(std::move(choices)));
    parts.push_back(rule_of(rule));
  } else {
    Expression tail = text_of("");
    for (std::int64_t i = least; i < *most; ++i) {
      tail = shared("most", optional_of(sequence_of({one, std::move(tail)})));
    }
    parts.push_back(std::move(tail));
  }
  return sequence_of(std::move(parts));
}

Expression Grammar::counted(Expression expression,
                            std::int64_t least,
                            std::optional<std::int64_t> most) {
  if (most == 0) return text_of("");
  return {.kind = Part::kCounted,
          .parts = {shared("item", std::move(expression))},
          .least = least,
          .most = most};
}

Expression Grammar::free_text(Expression trigger,
                              Expression behind,
                              std::vector<TokenId> excluded) {
  Expression free = {.kind = Part::kFree,
                     .parts = {std::move(trigger), shared("behind", std::move(behind))},
                     .excluded = std::move(excluded)};
  return shared("free", std::move(free));
}

std::string Grammar::free_text_printed(const Expression& expression) const {
  const Expression& trigger = expression.parts.front();
  const std::string rule = printed(expression.parts.back(), true);
  if (trigger.kind == Part::kText) {
    return fmt::format("TagDispatch(({}, {}))", printed(trigger, true), rule);
  }
  return fmt::format("TokenTagDispatch(({}, {}), excludes=({},))", trigger.token, rule,
                     fmt::join(expression.excluded, ","));
}

std::vector<bool> Grammar::productive_rules() const {
  std::vector<bool> productive(rules_.size(), false);
  bool changed = true;
  const auto look_at = [&](std::size_t i) {
    if (productive[i] || !is_productive(rules_[i].body, productive)) return;
    productive[i] = true;
    changed = true;
  };
  // Both ways, for rules may stand before or behind those that need them.
  while (changed) {
    changed = false;
    for (std::size_t i = 0; i < rules_.size(); ++i) look_at(i);
    for (std::size_t i = rules_.size(); i-- > 0;) look_at(i);
  }
  return productive;
}

Status Grammar::drop_endless() {
  const std::vector<bool> productive = productive_rules();
  if (!productive.front()) {
    return error(StatusCode::kInvalidArgument,
                 "expected what a finite answer can meet, got what never ends or is impossible");
  }
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    if (productive[i]) {
      drop_unproductive(rules_[i].body, productive);
    } else {
      rules_[i].body = text_of("");  // nothing refers to it
    }
  }
  return {};
}

std::size_t Grammar::size() const {
  std::size_t size = 0;
  for (const Rule& rule : rules_) size += size_of(rule.body);
  return size;
}

std::string Grammar::print() const {
  // Nothing may refer to root: masks of a recursive root lack tokens.
  std::string lines = "root ::= top\n";
  for (const Rule& rule : rules_) {
    const std::string limit =
        rule.most_chars ? fmt::format("[max_chars={}]", *rule.most_chars) : "";
    lines += fmt::format("{}{} ::= {}\n", rule.name, limit, printed(rule.body, false));
  }
  return lines;
}

std::string Grammar::printed(const Expression& expression, bool grouped) const {
  std::string text;
  switch (expression.kind) {
    case Part::kText:
      for (const char32_t c : code_points(expression.text)) text += shown(c);
      return '"' + text + '"';
    case Part::kChars:
      for (const CharRange& range : expression.ranges) {
        text += shown(range.first);
        if (range.last > range.first) text += '-' + shown(range.last);
      }
      return '[' + text + ']';
    case Part::kRule:
      return rules_[expression.rule].name;
    case Part::kToken:
      return fmt::format("Token({})", expression.token);
    case Part::kCounted:
      return fmt::format("{}{{{},{}}}", printed(expression.parts.front(), true), expression.least,
                         expression.most ? std::to_string(*expression.most) : "");
    case Part::kFree:
      return free_text_printed(expression);
    case Part::kSequence:
    case Part::kChoice:
      break;
  }
  const char* const between = expression.kind == Part::kChoice ? " | " : " ";
  for (const Expression& part : expression.parts) {
    if (!text.empty()) text += between;
    text += printed(part, true);
  }
  return grouped ? '(' + text + ')' : text;
}

}  // namespace kakeya::service
