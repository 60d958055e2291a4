#include "service/grammar/text_lengths.h"

#include <algorithm>
#include <limits>
#include <set>

namespace kakeya::service {
namespace {

using Part = Expression::Kind;
// By rule: characters; none where that is not known, or has no limit.
using Lengths = std::vector<std::optional<std::int64_t>>;

constexpr std::int64_t kMostCharacters = std::numeric_limits<std::int32_t>::max();

std::optional<std::int64_t> length_of(const Expression& expression, const Lengths& lengths) {
  std::int64_t length = 0;
  switch (expression.kind) {
    case Part::kText:
      return std::ssize(code_points(expression.text));
    case Part::kChars:
    case Part::kToken:
      return 1;
    case Part::kRule:
      return lengths[expression.rule];
    case Part::kFree:
      return std::nullopt;
    case Part::kSequence:
    case Part::kChoice:
      for (const Expression& part : expression.parts) {
        const auto one = length_of(part, lengths);
        if (!one) return std::nullopt;
        const bool is_choice = expression.kind == Part::kChoice;
        length = is_choice ? std::max(length, *one) : std::min(length + *one, kMostCharacters);
      }
      return length;
    case Part::kCounted:
      break;
  }
  const auto one = length_of(expression.parts.front(), lengths);
  if (!one || !expression.most) return std::nullopt;
  return std::min(*one * std::min(*expression.most, kMostCharacters), kMostCharacters);
}

// The characters of the longest way through the rule that comes to no rule again: the engine lets a
// limited rule go on behind its limit until it may end.
std::int64_t longest_way(const Grammar& grammar, RuleId rule, Lengths& ways) {
  if (ways[rule]) return *ways[rule];
  ways[rule] = 0;  // where it comes again
  const auto longest = [&](const auto& self, const Expression& expression) -> std::int64_t {
    if (expression.kind == Part::kRule) return longest_way(grammar, expression.rule, ways);
    if (expression.parts.empty()) return length_of(expression, ways).value_or(0);
    std::int64_t length = 0;
    for (const Expression& part : expression.parts) {
      const std::int64_t one = self(self, part);
      length = expression.kind == Part::kChoice ? std::max(length, one) : length + one;
    }
    return std::min(length * std::max<std::int64_t>(expression.least, 1), kMostCharacters);
  };
  ways[rule] = longest(longest, grammar.body_of(rule));
  return *ways[rule];
}

bool repeats_endlessly(const Expression& expression) {
  return expression.kind == Part::kFree ||
         (expression.kind == Part::kCounted && !expression.most) ||
         std::ranges::any_of(expression.parts, repeats_endlessly);
}

void add_rules_of(const Expression& expression, std::set<RuleId>& rules) {
  if (expression.kind == Part::kRule) rules.insert(expression.rule);
  for (const Expression& part : expression.parts) add_rules_of(part, rules);
}

// True if the rule leads to itself, through rules without a length alone.
bool leads_to_itself(const Grammar& grammar, RuleId rule, const Lengths& lengths) {
  std::set<RuleId> seen;
  std::vector<RuleId> open = {rule};
  while (!open.empty()) {
    std::set<RuleId> next;
    add_rules_of(grammar.body_of(open.back()), next);
    open.pop_back();
    for (const RuleId one : next) {
      if (one == rule) return true;
      if (!lengths[one] && seen.insert(one).second) open.push_back(one);
    }
  }
  return false;
}

}  // namespace

TextLengths lengths_of(const Grammar& grammar) {
  Lengths lengths(grammar.num_rules());
  for (RuleId rule = 0; rule < lengths.size(); ++rule) {
    const std::optional<std::int64_t> limit = grammar.limit_of(rule);
    Lengths ways(lengths.size());
    if (limit) lengths[rule] = *limit + longest_way(grammar, rule, ways);
  }
  bool changed = true;
  const auto look_at = [&](RuleId rule) {
    if (lengths[rule]) return;
    lengths[rule] = length_of(grammar.body_of(rule), lengths);
    changed = changed || lengths[rule].has_value();
  };
  // Both ways, for rules may stand before or behind those that they need.
  while (changed) {
    changed = false;
    for (RuleId rule = 0; rule < lengths.size(); ++rule) look_at(rule);
    for (RuleId rule = lengths.size(); rule-- > 0;) look_at(rule);
  }
  TextLengths found = {.most = lengths.front()};
  if (found.most) return found;
  std::set<std::string> endless;
  // From the first rule on alone: others may have been replaced by limited ones.
  std::set<RuleId> reached = {0};
  std::vector<RuleId> open = {0};
  while (!open.empty()) {
    const RuleId rule = open.back();
    open.pop_back();
    const Expression& body = grammar.body_of(rule);
    if (repeats_endlessly(body) || leads_to_itself(grammar, rule, lengths)) {
      endless.insert(grammar.hint_of(rule));
    }
    std::set<RuleId> next;
    add_rules_of(body, next);
    for (const RuleId one : next) {
      if (!lengths[one] && reached.insert(one).second) open.push_back(one);
    }
  }
  found.endless.assign(endless.begin(), endless.end());
  return found;
}

}  // namespace kakeya::service
