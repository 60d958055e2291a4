#include "service/grammar/json_rules.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/status.h"
#include "service/grammar/decimal.h"
#include "service/grammar/text_automaton.h"

namespace kakeya::service {
namespace {

Expression chars(const char* singles) {
  CharRanges ranges;
  for (const char* c = singles; *c != 0; ++c) {
    ranges.push_back({static_cast<char32_t>(*c), static_cast<char32_t>(*c)});
  }
  return chars_of(std::move(ranges));
}

Expression digit(char first, char last) {
  return chars_of({{static_cast<char32_t>(first), static_cast<char32_t>(last)}});
}

// Escapes of one letter (RFC 8259, section 7).
constexpr std::pair<char32_t, char> kEscapes[] = {
    {'\b', 'b'}, {'\t', 't'}, {'\n', 'n'}, {'\f', 'f'}, {'\r', 'r'}, {'"', '"'}, {'\\', '\\'}};

// A value as answers write it: whole numbers without a fraction.
std::string value_text(const nlohmann::ordered_json& value) {
  if (const auto number = decimal_of(value)) return number->text();
  if (!value.is_structured()) {
    return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }
  std::string text;
  for (const auto& [name, item] : value.items()) {
    if (!text.empty()) text += ',';
    if (value.is_object()) text += value_text(nlohmann::ordered_json(name)) + ':';
    text += value_text(item);
  }
  return value.is_array() ? '[' + text + ']' : '{' + text + '}';
}

}  // namespace

CharRanges JsonRules::unescaped() const {
  if (!notation_.is_json()) return normalized({{0, kLastChar}});
  return normalized({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kLastChar}});
}

CharRanges JsonRules::of_names() const {
  if (notation_.is_json()) return unescaped();
  return complement_of({{0, ' '},
                        {'"', '"'},
                        {',', ','},
                        {':', ':'},
                        {'[', '['},
                        {']', ']'},
                        {'{', '{'},
                        {'}', '}'},
                        {0x7F, 0x7F}});
}

Expression JsonRules::blank() {
  if (!notation_.is_json()) return text_of("");
  return grammar_.shared("blank", optional_of(text_of(" ")));
}

Expression JsonRules::string_end() const {
  return notation_.is_json() ? text_of("\"") : token_of(*notation_.quote);
}

std::vector<Expression> JsonRules::character_and(const Expression& rest) {
  std::vector<Expression> ways = {sequence_of({chars_of(unescaped()), rest})};
  if (notation_.is_json()) ways.push_back(sequence_of({text_of("\\"), escape(), rest}));
  return ways;
}

// The characters behind a backslash. A pair of surrogates is one character.
Expression JsonRules::escape() {
  const Expression hex = chars_of({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
  const Expression of_one = sequence_of(
      {chars_of({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}}), hex, hex, hex});
  const Expression below = sequence_of({chars("dD"), digit('0', '7'), hex, hex});
  const Expression pair =
      sequence_of({chars("dD"), chars_of({{'8', '9'}, {'a', 'b'}, {'A', 'B'}}), hex, hex,
                   text_of("\\u"), chars("dD"), chars_of({{'c', 'f'}, {'C', 'F'}}), hex, hex});
  return grammar_.shared(
      "escape", choice_of({chars("\"\\/bfnrt"),
                           sequence_of({text_of("u"), choice_of({of_one, below, pair})})}));
}

// The closing quote is within the repetition: masks are cheap then.
Expression JsonRules::string() {
  if (!string_rest_) {
    string_rest_ = grammar_.declare("string");
    std::vector<Expression> ways = character_and(rule_of(*string_rest_));
    ways.insert(ways.begin(), string_end());
    grammar_.define(*string_rest_, choice_of(std::move(ways)));
  }
  return sequence_of({string_end(), rule_of(*string_rest_)});
}

Expression JsonRules::characters() {
  if (!characters_) characters_ = own_characters();
  return *characters_;
}

Expression JsonRules::own_characters() {
  const RuleId rule = grammar_.declare("characters");
  std::vector<Expression> ways = character_and(rule_of(rule));
  ways.insert(ways.begin(), text_of(""));
  grammar_.define(rule, choice_of(std::move(ways)));
  return rule_of(rule);
}

Expression JsonRules::string_of(Expression content) const {
  return sequence_of({string_end(), std::move(content), string_end()});
}

// A limit counts an escape as more than one character: such a text is never too long.
Expression JsonRules::string(std::int64_t least, std::optional<std::int64_t> most) {
  Expression content = most ? own_characters() : characters();
  for (std::int64_t i = 0; i < least; ++i) {
    content = grammar_.shared("least", choice_of(character_and(content)));
  }
  if (most == 0) return string_of(text_of(""));
  if (most) content = grammar_.limited("text", std::move(content), *most);
  return string_of(std::move(content));
}

Expression JsonRules::character_of(const CharRanges& ranges) const {
  std::vector<Expression> ways;
  CharRanges plain = common_to(ranges, unescaped());
  if (!plain.empty()) ways.push_back(chars_of(std::move(plain)));
  CharRanges letters;
  for (const auto& [point, letter] : kEscapes) {
    const bool is_in = std::ranges::any_of(ranges, [point = point](const CharRange& range) {
      return range.first <= point && point <= range.last;
    });
    const auto code = static_cast<char32_t>(letter);
    if (is_in) letters.push_back({code, code});
  }
  if (notation_.is_json() && !letters.empty()) {
    ways.push_back(sequence_of({text_of("\\"), chars_of(std::move(letters))}));
  }
  return choice_of(std::move(ways));
}

Expression JsonRules::literal(const nlohmann::ordered_json& value) const {
  if (notation_.is_json() || !(value.is_structured() || value.is_string())) {
    return text_of(value_text(value));
  }
  if (value.is_string()) return string_of(text_of(value.get_ref<const std::string&>()));
  std::vector<Expression> parts = {text_of(value.is_array() ? "[" : "{")};
  for (const auto& [name, item] : value.items()) {
    if (parts.size() > 1) parts.push_back(text_of(","));
    if (value.is_object()) parts.push_back(key(name));
    parts.push_back(literal(item));
  }
  parts.push_back(text_of(value.is_array() ? "]" : "}"));
  return sequence_of(std::move(parts));
}

Expression JsonRules::key(const std::string& name) const {
  if (notation_.is_json()) return text_of(value_text(nlohmann::ordered_json(name)) + ":");
  const CharRanges allowed = of_names();
  const bool is_bare = !name.empty() && std::ranges::all_of(code_points(name), [&](char32_t c) {
    return !common_to({{c, c}}, allowed).empty();
  });
  if (is_bare) return text_of(name + ":");
  return sequence_of({string_of(text_of(name)), text_of(":")});
}

Expression JsonRules::digits() {
  if (!digits_) {
    digits_ = grammar_.declare("digits");
    grammar_.define(*digits_, optional_of(sequence_of({digit('0', '9'), rule_of(*digits_)})));
  }
  return rule_of(*digits_);
}

Expression JsonRules::integer() {
  if (!integer_) {
    const Expression above = sequence_of({optional_of(text_of("-")), digit('1', '9'), digits()});
    integer_ = grammar_.limited("integer", choice_of({text_of("0"), above}), kMostDigits);
  }
  return *integer_;
}

Expression JsonRules::number() {
  if (!number_) {
    const Expression whole = choice_of({text_of("0"), sequence_of({digit('1', '9'), digits()})});
    const Expression fraction = sequence_of({text_of("."), digit('0', '9'), digits()});
    // Two digits: a number beyond all that a reader can hold is none to it.
    const Expression exponent = sequence_of(
        {chars("eE"), optional_of(chars("+-")), digit('0', '9'), optional_of(digit('0', '9'))});
    number_ = grammar_.limited("number",
                               sequence_of({optional_of(text_of("-")), whole, optional_of(fraction),
                                            optional_of(exponent)}),
                               kMostDigits);
  }
  return *number_;
}

// As many digits as about so many rules can count. A limited rule would go on behind its limit for
// as long as what was read has a remainder.
Result<Expression> JsonRules::multiple_of(std::int64_t divisor) {
  const auto known = multiples_.find(divisor);
  if (known != multiples_.end()) return known->second;
  constexpr std::int64_t kAboutRules = 1024;
  const TextAutomaton all = TextAutomaton::multiples_of(divisor, grammar_.effort());
  // The first and the last few digits have few remainders.
  const auto states = static_cast<std::int64_t>(all.size().rules);
  const std::int64_t digits = std::min<std::int64_t>(4 + kAboutRules / states, 18);
  KAKEYA_ASSIGN_OR_RETURN(const TextAutomaton counted, all.of_length(1, digits, grammar_.effort()));
  Expression above = counted.json_texts(grammar_, *this);
  const Expression signed_one = sequence_of({optional_of(text_of("-")), std::move(above)});
  return multiples_
      .emplace(divisor, grammar_.shared("multiple", choice_of({text_of("0"), signed_one})))
      .first->second;
}

Expression JsonRules::object() {
  if (object_) return rule_of(*object_);
  object_ = grammar_.declare("object");
  const RuleId members = grammar_.declare("members");
  const Expression member = sequence_of({other_key({}), blank(), any()});
  const Expression end = sequence_of({blank(), text_of("}")});
  grammar_.define(members,
                  choice_of({end, sequence_of({text_of(","), blank(), member, rule_of(members)})}));
  grammar_.define(*object_,
                  choice_of({sequence_of({text_of("{"), end}),
                             sequence_of({text_of("{"), blank(), member, rule_of(members)})}));
  return rule_of(*object_);
}

Expression JsonRules::any() {
  if (any_) return rule_of(*any_);
  any_ = grammar_.declare("value");
  const RuleId items = grammar_.declare("items");
  const Expression end = sequence_of({blank(), text_of("]")});
  grammar_.define(
      items,
      choice_of({end, sequence_of({text_of(","), blank(), rule_of(*any_), rule_of(items)})}));
  grammar_.define(
      *any_,
      choice_of({number(), string(), text_of("true"), text_of("false"), text_of("null"),
                 sequence_of({text_of("["), end}),
                 sequence_of({text_of("["), blank(), rule_of(*any_), rule_of(items)}), object()}));
  return rule_of(*any_);
}

// The rest of a name, with its colon.
Expression JsonRules::key_rest() {
  if (!key_rest_) {
    key_rest_ = grammar_.declare("key_rest");
    const Expression end = text_of(notation_.is_json() ? "\":" : ":");
    grammar_.define(*key_rest_,
                    choice_of({end, sequence_of({chars_of(of_names()), rule_of(*key_rest_)})}));
  }
  return rule_of(*key_rest_);
}

Expression JsonRules::other_key(const std::vector<std::u32string>& names) {
  if (!notation_.is_json()) {
    std::vector<std::u32string> others = names;
    others.emplace_back();  // a bare name has a character
    return rest_of_other_key(others);
  }
  // Where all are allowed, so are escapes.
  if (names.empty()) return sequence_of({string(), text_of(":")});
  return sequence_of({text_of("\""), rest_of_other_key(names)});
}

// A tree of the names' characters: where a text leaves it, it is another name.
Expression JsonRules::rest_of_other_key(const std::vector<std::u32string>& names) {
  std::map<char32_t, std::vector<std::u32string>> by_first;
  bool ends_here = false;
  CharRanges firsts;
  for (const std::u32string& name : names) {
    if (name.empty()) {
      ends_here = true;
    } else {
      by_first[name[0]].push_back(name.substr(1));
      firsts.push_back({name[0], name[0]});
    }
  }
  std::vector<Expression> ways;
  if (!ends_here) ways.push_back(text_of(notation_.is_json() ? "\":" : ":"));
  CharRanges others = common_to(complement_of(std::move(firsts)), of_names());
  if (!others.empty()) ways.push_back(sequence_of({chars_of(std::move(others)), key_rest()}));
  for (const auto& [first, rests] : by_first) {
    CharRanges one = common_to({{first, first}}, of_names());
    if (one.empty()) continue;  // it takes an escape, which no other name has
    ways.push_back(sequence_of({chars_of(std::move(one)), rest_of_other_key(rests)}));
  }
  return grammar_.shared("key", choice_of(std::move(ways)));
}

}  // namespace kakeya::service
