// Rules of JSON (RFC 8259) that schemas share: any value, texts, numbers; also as Gemma 4 writes
// values in calls of tools.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "service/grammar/grammar.h"

namespace kakeya::service {

// How values are written. With a quote, as Gemma 4 does: texts between that token, without escapes,
// names of members bare, no blanks:
//   {key:<|"|>text<|"|>,other:[1,true]}
struct Notation {
  std::optional<TokenId> quote = {};

  bool is_json() const { return !quote; }
};

inline constexpr std::int64_t kMostDigits = 32;

// Makes the rules of one grammar as they are asked for.
class JsonRules {
 public:
  explicit JsonRules(Grammar& grammar, Notation notation = {})
      : grammar_(grammar), notation_(notation) {}

  const Notation& notation() const { return notation_; }

  // Any value. Between its parts at most one blank, as everywhere: endless blanks would let an
  // answer say nothing for ever.
  Expression any();
  Expression object();  // any
  Expression string();
  // A text of so many characters.
  Expression string(std::int64_t least, std::optional<std::int64_t> most);
  // A text that `content`, made of character_of(), allows.
  Expression string_of(Expression content) const;
  // Numbers of about kMostDigits characters at most: others could go on for ever.
  Expression number();
  Expression integer();
  // A whole number that `divisor` divides. Errors: kResourceExhausted where the grammar has no
  // effort left.
  Result<Expression> multiple_of(std::int64_t divisor);
  // This value alone.
  Expression literal(const nlohmann::ordered_json& value) const;
  // The name of a member, with its colon.
  Expression key(const std::string& name) const;
  // A name that is none of `names`, written without escapes, with its colon.
  Expression other_key(const std::vector<std::u32string>& names);
  // At most one blank.
  Expression blank();
  // One character of a text, escaped or not, of those in `ranges`; surrogates' escapes are not
  // written. Without parts if none can be written.
  Expression character_of(const CharRanges& ranges) const;
  // Any number of characters of a text.
  Expression characters();

 private:
  // Characters that stand for themselves in a text, and in a name.
  CharRanges unescaped() const;
  CharRanges of_names() const;
  Expression string_end() const;
  // As characters(), for a rule with a limit.
  Expression own_characters();
  // Any character of a text, and what follows it.
  std::vector<Expression> character_and(const Expression& rest);
  Expression escape();
  Expression digits();
  Expression key_rest();
  Expression rest_of_other_key(const std::vector<std::u32string>& names);

  Grammar& grammar_;
  const Notation notation_;
  std::optional<RuleId> any_ = {};
  std::optional<RuleId> object_ = {};
  std::optional<RuleId> string_rest_ = {};
  std::optional<Expression> characters_ = {};
  std::optional<RuleId> digits_ = {};
  std::optional<Expression> integer_ = {};
  std::optional<Expression> number_ = {};
  std::optional<RuleId> key_rest_ = {};
  std::map<std::int64_t, Expression> multiples_ = {};
};

}  // namespace kakeya::service
