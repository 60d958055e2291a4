// A context-free grammar of what an answer may be, as rules. Schemas, regular expressions and
// grammars of users become one; GrammarEngine compiles it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya::service {

// Code points [first, last].
struct CharRange {
  char32_t first = 0;
  char32_t last = 0;

  bool operator==(const CharRange&) const = default;
};
using CharRanges = std::vector<CharRange>;

// The last code point. Those of surrogates are no characters.
inline constexpr char32_t kLastChar = 0x10FFFF;

// Sorted, without overlaps, without surrogates.
CharRanges normalized(CharRanges ranges);
// The characters that are in none of the ranges.
CharRanges complement_of(CharRanges ranges);
// The characters that are in both.
CharRanges common_to(const CharRanges& one, const CharRanges& other);
std::size_t count_of(const CharRanges& ranges);

// The bytes of the character that begins with this one, in valid UTF-8.
std::size_t character_bytes(char first);
// The characters of a text, which is valid UTF-8.
std::u32string code_points(std::string_view text);

using RuleId = std::size_t;

// Steps, of some half a microsecond each, that all patterns of a form together may still take to be
// read: one alone might take a second.
class Effort {
 public:
  // False if fewer are left, of which none are then.
  bool spend(std::size_t steps) {
    left_ -= std::min(left_, steps);
    return left_ > 0;
  }
  std::size_t left() const { return left_; }

 private:
  std::size_t left_ = std::size_t{1} << 19;
};

// A part of an answer, and what it may be.
struct Expression {
  enum class Kind : std::uint8_t {
    kText,      // this text, which may be empty
    kChars,     // one character of `ranges`
    kRule,      // what rule `rule` is
    kToken,     // the token with this id, whatever its text
    kSequence,  // one part behind the other
    kChoice,    // one of the parts
    kCounted,   // the only part, a rule, `least` to `most` times
    kFree,      // Grammar::free_text(): the trigger and a rule
  };
  Kind kind = Kind::kText;
  std::string text = {};
  CharRanges ranges = {};
  RuleId rule = 0;
  TokenId token = 0;
  std::vector<Expression> parts = {};
  std::int64_t least = 0;
  std::optional<std::int64_t> most = {};
  std::vector<TokenId> excluded = {};  // of kFree
};

Expression text_of(std::string_view text);
Expression chars_of(CharRanges ranges);
Expression rule_of(RuleId rule);
Expression token_of(TokenId token);
Expression sequence_of(std::vector<Expression> parts);
Expression choice_of(std::vector<Expression> parts);
// An expression that no text meets.
Expression never();
// Nothing, or that.
Expression optional_of(Expression expression);

// Rules, the first one of which is what a whole answer may be.
class Grammar {
 public:
  Grammar();

  // Sets what a whole answer may be.
  void set_root(Expression root) { rules_.front().body = std::move(root); }

  // Makes a rule that is defined later, so that it may refer to itself.
  RuleId declare(std::string_view hint);
  void define(RuleId rule, Expression body) { rules_[rule].body = std::move(body); }

  // A reference to a rule with this body; rules of equal bodies are one.
  Expression shared(std::string_view hint, Expression body);

  // A rule which has at most `most` characters of what `body` allows. Rules that it repeats must be
  // its own: where another rule repeats them from the same place on, the engine takes the end of
  // either for the end of both, and the limit is lost.
  Expression limited(std::string_view hint, Expression body, std::int64_t most);

  const Expression& body_of(RuleId rule) const { return rules_[rule].body; }
  std::size_t num_rules() const { return rules_.size(); }
  bool is_limited(RuleId rule) const { return limit_of(rule).has_value(); }
  // The most characters of a limited rule.
  std::optional<std::int64_t> limit_of(RuleId rule) const { return rules_[rule].most_chars; }
  // The word that the rule was made with.
  std::string hint_of(RuleId rule) const {
    return rules_[rule].name.substr(0, rules_[rule].name.rfind('_'));
  }

  // `expression` at least `least` times and at most `most`; none: any number of times. Repeated by
  // right recursion, for which masks are cheap.
  Expression repeated(const Expression& expression,
                      std::int64_t least,
                      std::optional<std::int64_t> most);

  // As repeated(), in one expression, for counts that are large. Characters are not counted so:
  // their masks would take long.
  Expression counted(Expression expression, std::int64_t least, std::optional<std::int64_t> most);

  // Any tokens but those that are excluded; behind each `trigger`, a text or a token, comes what
  // `behind` allows, and then anything again.
  Expression free_text(Expression trigger, Expression behind, std::vector<TokenId> excluded);

  // Leaves out choices that no finite text meets. Errors: kInvalidArgument where nothing is left.
  Status drop_endless();

  // For what makes its rules.
  Effort& effort() { return effort_; }

  // All expressions of all rules.
  std::size_t size() const;

  // The grammar in the EBNF of xgrammar: "root ::= r0" and a line for each rule.
  std::string print() const;

 private:
  struct Rule {
    std::string name;
    Expression body;
    std::optional<std::int64_t> most_chars = {};
  };

  // For each rule, whether some finite text meets it.
  std::vector<bool> productive_rules() const;
  std::string printed(const Expression& expression, bool grouped) const;
  std::string free_text_printed(const Expression& expression) const;

  std::vector<Rule> rules_;
  std::unordered_map<std::string, RuleId> by_body_;
  Effort effort_;
};

}  // namespace kakeya::service
