#include "service/grammar/number_rules.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace kakeya::service {
namespace {

// A bound of numbers that are not negative, digit by digit.
struct Limit {
  std::string digits;  // all of them, those behind the point included
  std::size_t whole_digits = 0;
  bool included = true;

  explicit Limit(const NumberBound& bound)
      : digits(bound.value.whole_digits()), whole_digits(digits.size()), included(bound.included) {
    digits += bound.value.fraction_digits(0);
  }

  std::size_t decimals() const { return digits.size() - whole_digits; }
  char digit(std::size_t at) const { return at < digits.size() ? digits[at] : '0'; }
  bool only_zeros_from(std::size_t at) const {
    return at >= digits.size() || digits.find_first_not_of('0', at) == std::string::npos;
  }
};

Expression digits_between(char first, char last) {
  return chars_of({{static_cast<char32_t>(first), static_cast<char32_t>(last)}});
}

// Writes the numbers from 0 up that lie between two limits. What matters of the digits that were
// read is how many there are and whether they still equal those of either limit: then the next one
// is bounded by the limit's.
class Decimals {
 public:
  Decimals(Grammar& grammar, Limit least, std::optional<Limit> most, bool whole)
      : grammar_(grammar), least_(std::move(least)), most_(std::move(most)), whole_(whole) {
    decimals_ = std::max({decimals_, least_.decimals(), most_ ? most_->decimals() : 0});
  }

  Expression rules() {
    std::vector<Expression> ways;
    const std::size_t shortest = least_.whole_digits;
    const std::size_t longest = most_ ? most_->whole_digits : shortest;
    for (std::size_t size = shortest; size <= longest; ++size) {
      ways.push_back(next_digit({.size = size,
                                 .at_least = size == shortest,
                                 .at_most = most_ && size == most_->whole_digits},
                                size == 1 ? '0' : '1'));
    }
    if (!most_) ways.push_back(longer_than(shortest));
    return choice_of(std::move(ways));
  }

 private:
  struct State {
    std::size_t size = 0;  // digits before the point
    std::size_t at = 0;    // digits read
    bool at_least = false;
    bool at_most = false;
  };

  bool may_end(const State& state) const {
    if (state.at_least && !(least_.only_zeros_from(state.at) && least_.included)) return false;
    return !state.at_most || !most_->only_zeros_from(state.at) || most_->included;
  }

  // Any number with more digits before its point.
  Expression longer_than(std::size_t size) {
    const Expression digit = digits_between('0', '9');
    Expression number =
        sequence_of({digits_between('1', '9'),
                     grammar_.repeated(digit, static_cast<std::int64_t>(size), std::nullopt)});
    if (whole_) return number;
    return sequence_of(
        {std::move(number),
         optional_of(sequence_of({text_of("."), grammar_.repeated(digit, 1, std::nullopt)}))});
  }

  Expression next_digit(const State& state, char lowest) {
    std::vector<Expression> ways;
    const char first = state.at_least ? std::max(lowest, least_.digit(state.at)) : lowest;
    const char last = state.at_most ? most_->digit(state.at) : '9';
    for (char digit = first; digit <= last;) {
      const auto behind = [&](char read) {
        return State{.size = state.size,
                     .at = state.at + 1,
                     .at_least = state.at_least && read == least_.digit(state.at),
                     .at_most = state.at_most && read == most_->digit(state.at)};
      };
      const State next = behind(digit);
      char end = digit;
      const auto is_alike = [&](const State& other) {
        return other.at_least == next.at_least && other.at_most == next.at_most;
      };
      while (end < last && is_alike(behind(static_cast<char>(end + 1)))) ++end;
      ways.push_back(sequence_of({digits_between(digit, end), rest(next)}));
      digit = static_cast<char>(end + 1);
    }
    return choice_of(std::move(ways));
  }

  // The rest of a number in this state.
  Expression rest(State state) {
    // Behind their last digits the limits have zeros, as many as one likes.
    state.at = std::min(state.at, state.size + decimals_);
    const auto key = std::tuple(state.size, state.at, state.at_least, state.at_most);
    const auto [known, is_new] = known_.try_emplace(key);
    if (!is_new) return rule_of(known->second);
    const RuleId rule = grammar_.declare("digit");
    known->second = rule;
    std::vector<Expression> ways;
    if (state.at < state.size) {
      ways.push_back(next_digit(state, '0'));
    } else {
      if (may_end(state)) ways.push_back(text_of(""));
      const Expression point = text_of(state.at == state.size ? "." : "");
      if (!whole_) ways.push_back(sequence_of({point, next_digit(state, '0')}));
    }
    grammar_.define(rule, choice_of(std::move(ways)));
    return rule_of(rule);
  }

  Grammar& grammar_;
  const Limit least_;
  const std::optional<Limit> most_;
  const bool whole_;
  std::size_t decimals_ = 1;  // behind so many digits of a fraction the limits have zeros
  std::map<std::tuple<std::size_t, std::size_t, bool, bool>, RuleId> known_;
};

NumberBound negated(const NumberBound& bound) {
  return {.value = bound.value.negated(), .included = bound.included};
}

// The tighter one of two lower bounds.
NumberBound tighter(const NumberBound& bound, const NumberBound& other) {
  if (bound.value != other.value) return bound.value > other.value ? bound : other;
  return {.value = bound.value, .included = bound.included && other.included};
}

Expression from_zero(Grammar& grammar,
                     const NumberBound& least,
                     const std::optional<NumberBound>& most,
                     bool whole) {
  if (most && (most->value < least.value || most->value.negative)) return never();
  std::optional<Limit> limit;
  if (most) limit.emplace(*most);
  return Decimals(grammar, Limit(least), std::move(limit), whole).rules();
}

}  // namespace

Expression numbers_within(Grammar& grammar, const NumberBounds& bounds, bool whole) {
  const NumberBound zero = {};
  const NumberBound above_zero = {.included = false};
  std::optional<NumberBound> most_below;
  if (bounds.least) most_below = negated(*bounds.least);
  const Expression below =
      from_zero(grammar, bounds.most ? tighter(negated(*bounds.most), above_zero) : above_zero,
                most_below, whole);
  const Expression above =
      from_zero(grammar, bounds.least ? tighter(*bounds.least, zero) : zero, bounds.most, whole);
  return grammar.shared("bounded", choice_of({above, sequence_of({text_of("-"), below})}));
}

}  // namespace kakeya::service
