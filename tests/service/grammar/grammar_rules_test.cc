// Texts that schemas, expressions and grammars allow, and what of these is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "service/grammar/grammar_test.h"

namespace kakeya::service {
namespace {

using Kind = AnswerFormat::Kind;
using testing::HasSubstr;

// Texts that an answer may be, and some that it may not.
struct Example {
  Kind kind;
  std::string text;
  std::vector<std::string> accepted;
  std::vector<std::string> rejected;
};

using GrammarRules = GrammarTest;

void check(const Example& example) {
  const auto compiled = demo_grammars().engine->compile(format_of(example.kind, example.text));
  ASSERT_TRUE(compiled) << example.text << ": " << compiled.error().message();
  for (const std::string& text : example.accepted) {
    EXPECT_TRUE(demo_grammars().accepts(**compiled, text)) << example.text << " rejects " << text;
  }
  for (const std::string& text : example.rejected) {
    EXPECT_FALSE(demo_grammars().accepts(**compiled, text)) << example.text << " accepts " << text;
  }
}

TEST_F(GrammarRules, Schemas) {
  const Example examples[] = {
      {Kind::kJsonSchema,
       R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})",
       {R"({"a":1})", R"({"a": -20})", R"({ "a":0 })"},
       {R"({})", R"({"a":1.5})", R"({"a":1,"b":2})", R"({"a":01})", R"(  {"a":1})"}},
      {Kind::kJsonSchema,
       R"({"type":"string","maxLength":3})",
       {R"("")", R"("abc")", R"("äöü")"},
       {R"("abcd")", "\"a\nb\"", "abc"}},
      {Kind::kJsonSchema,
       R"({"enum":["x",1,null,{"k":[1,2]}]})",
       {R"("x")", "1", "null", R"({"k":[1,2]})"},
       {"2", R"("y")", R"({"k":[1, 2]})"}},
      {Kind::kJsonSchema,
       R"({"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":20})",
       {"[true]", "[true, false]"},
       {"[]", "[1]", "[true,]"}},
      {Kind::kJsonSchema,
       R"({"$defs":{"n":{"type":"object","properties":{"v":{"type":"null"},"n":{"$ref":"#/$defs/n"}}}},"$ref":"#/$defs/n"})",
       {"{}", R"({"v":null,"n":{"n":{}}})"},
       {R"({"n":1})"}},
      {Kind::kJsonSchema,
       R"({"type":"string","pattern":"^a[0-9]{2,3}(x|y)?$"})",
       {R"("a12")", R"("a123y")"},
       {R"("a1")", R"("a1234")", R"("ba12")"}},
      {Kind::kJsonSchema,
       R"({"type":"string","format":"date"})",
       {R"("2026-11-27")", R"("2024-02-29")"},
       {R"("2026-02-30")", R"("2023-02-29")"}},
      // Two ways to read a text, one of them limited.
      {Kind::kJsonSchema,
       R"({"anyOf":[{"type":"string","maxLength":3},{"type":"string","pattern":"x+y?"}]})",
       {R"("abc")", R"("aaaaxx")"},
       {R"("abcd")", R"("abcdefghijkl")"}},
      {Kind::kJsonSchema,
       R"({"anyOf":[{"type":"string","maxLength":3},{"type":"array"},{"type":"string","minLength":6}]})",
       {R"("abc")", R"("abcdef")"},
       {R"("abcd")", R"("abcde")"}},
      {Kind::kJsonObject, "", {"{}", R"({"a":[1,{"b":"\u00e9"}]})"}, {"[]", "1", "{"}},
  };
  for (const Example& example : examples) check(example);
}

TEST_F(GrammarRules, ExpressionsAndGrammars) {
  const Example examples[] = {
      {Kind::kRegex,
       "(red|green){1,2} [^x-z]+",
       {"red a", "greenred äb"},
       {"red x", "red ", "blue a"}},
      {Kind::kRegex, R"(\d{3}-\d{4})", {"555-1234"}, {"555-123", "5555-1234", " 555-1234"}},
      {Kind::kRegex, ".{0,500}", {"", "some text"}, {"two\nlines"}},
      {Kind::kGrammar,
       "root ::= item (\", \" item)*  # a list\nitem ::= [a-z]+ | \"\\\"\" . \"\\\"\"",
       {"a", "ab, c", "\"ä\", x"},
       {"", "a,b", "A"}},
      {Kind::kGrammar,
       "root ::= \"x\"{2,3} tail?\ntail ::=\n  \"!\"\n  | \"?\"",
       {"xx", "xxx!", "xx?"},
       {"x", "xxxx", "xx!?"}},
      {Kind::kGrammar, "root ::= root \"a\" | \"b\"", {"b", "baa"}, {"", "a"}},
  };
  for (const Example& example : examples) check(example);
  AnswerFormat choice = {.kind = Kind::kChoice, .choices = {"yes", "no", "yes, but"}};
  const auto compiled = demo_grammars().engine->compile(choice);
  ASSERT_TRUE(compiled);
  EXPECT_TRUE(demo_grammars().accepts(**compiled, "yes, but"));
  EXPECT_TRUE(demo_grammars().accepts(**compiled, "yes"));
  EXPECT_FALSE(demo_grammars().accepts(**compiled, "yes, "));
}

TEST_F(GrammarRules, RefusalsNameWhatAndWhere) {
  const std::pair<Example, std::string> refusals[] = {
      {{Kind::kJsonSchema, R"({"properties":{"a":{"uniqueItems":true}}})", {}, {}},
       "uniqueItems at #/properties/a"},
      {{Kind::kJsonSchema, R"({"$ref":"#"})", {}, {}}, "never ends"},
      {{Kind::kJsonSchema, R"({"type":"array","items":{"$ref":"#"},"minItems":1})", {}, {}},
       "never ends"},
      {{Kind::kJsonSchema, "{", {}, {}}, "expected JSON"},
      {{Kind::kJsonSchema, R"({"minimum":3,"maximum":2,"type":"integer"})", {}, {}}, "impossible"},
      {{Kind::kRegex, "(a", {}, {}}, "a ')' at character 3"},
      {{Kind::kRegex, "a(?=b)", {}, {}}, "without look-around"},
      {{Kind::kRegex, "(a)\\1", {}, {}}, "back-reference"},
      {{Kind::kRegex, "(a{200}){200}", {}, {}}, "fewer counted repetitions"},
      {{Kind::kGrammar, "root ::= a", {}, {}}, "a rule 'a' at line 1, column 10"},
      {{Kind::kGrammar, "start: \"a\"", {}, {}}, "NAME ::="},
      {{Kind::kGrammar, "root ::= root", {}, {}}, "never ends"},
  };
  for (const auto& [example, expected] : refusals) {
    const auto compiled = demo_grammars().engine->compile(format_of(example.kind, example.text));
    ASSERT_FALSE(compiled) << example.text;
    EXPECT_EQ(compiled.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(compiled.error().message(), HasSubstr(expected)) << example.text;
  }
}

TEST_F(GrammarRules, HostileInputIsRefusedOrBounded) {
  std::string nested;
  for (int i = 0; i < 3000; ++i) nested += R"({"items":)";
  std::string letters = "root ::= a0\n";
  for (int i = 0; i < 3000; ++i) {
    letters += "a" + std::to_string(i) + " ::= \"x\" a" + std::to_string(i + 1) + "\n";
  }
  const std::pair<Kind, std::string> hostile[] = {
      {Kind::kJsonSchema, nested + "{}" + std::string(3000, '}')},
      {Kind::kJsonSchema, std::string(100000, '[')},
      {Kind::kJsonSchema, R"({"type":"string","maxLength":1e300})"},
      {Kind::kRegex, std::string(50000, '(')},
      {Kind::kRegex, "x{1000000}"},
      {Kind::kGrammar, "root ::= " + std::string(50000, '(')},
      {Kind::kGrammar, letters},
      {Kind::kGrammar, "root ::= \"\xFF\xFE\""},
  };
  for (const auto& [kind, text] : hostile) {
    EXPECT_FALSE(demo_grammars().engine->compile(format_of(kind, text))) << text.substr(0, 40);
  }
  // Exponential for those who go back.
  EXPECT_TRUE(demo_grammars().engine->compile(format_of(Kind::kRegex, "((a+)+)+b")));
  EXPECT_TRUE(demo_grammars().engine->compile(format_of(Kind::kRegex, "(a|b)*a(a|b){20}")));
}

AnswerFormat lax_schema(std::string_view text) {
  AnswerFormat format = format_of(Kind::kJsonSchema, text);
  format.schema.strict = false;
  return format;
}

// Schemas that clients' generators write, each with what is enforced of it and what is said not to
// be.
TEST_F(GrammarRules, WhatIsNotEnforcedIsNotedUnlessTheSchemaIsStrict) {
  struct Lax {
    std::string schema;
    std::vector<std::string> notes;
    std::vector<std::string> accepted;
    std::vector<std::string> rejected;
  };
  const Lax examples[] = {
      {R"({"type":"array","items":{"type":"integer"},"uniqueItems":true})",
       {"uniqueItems at #"},
       {"[1,1]"},
       {R"(["a"])"}},
      {R"({"type":"string","minLength":100})", {"minLength over 64 at #"}, {}, {R"("short")"}},
      {R"({"type":"number","multipleOf":0.5})",
       {"multipleOf but of integers, 1 to 256 at #"},
       {"1.5"},
       {R"("a")"}},
      {R"({"type":"string","format":"idn-email"})",
       {"format \"idn-email\" at #"},
       {R"("a")"},
       {"1"}},
      {R"({"type":"string","format":"email","pattern":"^\\p{L}+$"})",
       {"pattern beside format at #"},
       {R"("ann@example.com")"},
       {R"("ann")"}},
      {R"({"type":"string","pattern":"^a(?=b)b$"})",
       {"pattern: regular expression: expected a group without look-around or flags at character "
        "5 at #"},
       {R"("x")"},
       {"1"}},
      {R"({"type":"string","pattern":"^a+(-a+)*$","maxLength":400})",
       {"a length beside pattern or format at #"},
       {R"("aaaaa-a")"},
       {R"("b")"}},
      {R"({"type":"object","properties":{"n":{"type":"integer","not":{"const":3}},"m":{"enum":["on","off"]}},"required":["m"]})",
       {"not at #/properties/n"},
       {R"({"n":3,"m":"on"})"},
       {R"({"m":"x"})"}},
      {R"({"$ref":"https://example.com/schema"})",
       {"$ref \"https://example.com/schema\" at #"},
       {"1", "[]"},
       {}},
      {R"({"oneOf":[{"type":"number"},{"type":"integer"}]})",
       {"oneOf whose schemas may meet at #"},
       {"1", "1.5"},
       {R"("a")"}},
      {R"({"type":"object","minProperties":2,"additionalProperties":{"type":"integer"}})",
       {"minProperties or maxProperties of an open object at #"},
       {R"({"a":1})"},
       {R"({"a":"b"})"}},
  };
  for (const Lax& example : examples) {
    const auto strict =
        demo_grammars().engine->compile(format_of(Kind::kJsonSchema, example.schema));
    EXPECT_FALSE(strict) << example.schema;
    const auto compiled = demo_grammars().engine->compile(lax_schema(example.schema));
    ASSERT_TRUE(compiled) << example.schema << ": " << compiled.error().message();
    EXPECT_EQ((*compiled)->notes(), example.notes) << example.schema;
    for (const std::string& text : example.accepted) {
      EXPECT_TRUE(demo_grammars().accepts(**compiled, text)) << example.schema << " " << text;
    }
    for (const std::string& text : example.rejected) {
      EXPECT_FALSE(demo_grammars().accepts(**compiled, text)) << example.schema << " " << text;
    }
  }
}

// A keyword that narrows nothing is no reason to refuse a strict schema.
TEST_F(GrammarRules, KeywordsThatSayNothingPass) {
  for (
      const char* schema : {
          R"({"type":"array","uniqueItems":false})",
          R"({"type":"object","patternProperties":{},"dependentRequired":{},"propertyNames":{}})",
          R"({"type":"string","nullable":false,"example":"a","x-order":1,"markdownDescription":""})",
          R"({"type":"string","maxLength":100000})",
          R"({"type":"array","maxItems":1000000})",
          R"({"type":"string","format":"duration"})",
          R"({"type":"string","format":"ipv6"})",
          R"({"type":"string","format":"uri"})",
      }) {
    const auto compiled = demo_grammars().engine->compile(format_of(Kind::kJsonSchema, schema));
    ASSERT_TRUE(compiled) << schema << ": " << compiled.error().message();
    EXPECT_TRUE((*compiled)->notes().empty());
  }
}

// Bounds that doubles do not hold, at their ends and beside them.
TEST_F(GrammarRules, NumbersHaveAllTheirDigits) {
  const Example examples[] = {
      {Kind::kJsonSchema,
       R"({"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991})",
       {"9007199254740991", "-9007199254740991", "0"},
       {"9007199254740992", "-9007199254740992", "90071992547409910"}},
      {Kind::kJsonSchema,
       R"({"type":"integer","minimum":-9223372036854775808,"maximum":18446744073709551615})",
       {"18446744073709551615", "-9223372036854775808"},
       {"18446744073709551616", "-9223372036854775809"}},
      {Kind::kJsonSchema,
       R"({"type":"number","exclusiveMinimum":1e-9,"maximum":1.5e18})",
       {"0.0000000011", "1500000000000000000", "1"},
       {"0.000000001", "0", "1500000000000000000.1"}},
      {Kind::kJsonSchema,
       R"({"type":"number","minimum":0.1,"exclusiveMaximum":0.12345678901234567890123})",
       {"0.1", "0.12345678901234567890122"},
       {"0.12345678901234567890123", "0.0999"}},
      {Kind::kJsonSchema, R"({"type":"integer","maximum":1e300})", {"7", "-7"}, {"1.5"}},
      {Kind::kJsonSchema,
       R"({"enum":[18446744073709551617,0.30,1e2,-0.0,[1.50]]})",
       {"18446744073709551617", "0.3", "100", "0", "[1.5]"},
       {"18446744073709551616", "1.8446744073709552e+19"}},
      {Kind::kJsonSchema,
       R"({"type":"integer","exclusiveMinimum":0,"exclusiveMaximum":2})",
       {"1"},
       {"0", "2", "-1"}},
      {Kind::kJsonSchema, R"({"type":"integer","minimum":3,"maximum":3})", {"3"}, {"2", "4"}},
      {Kind::kJsonSchema, R"({"type":"number"})", {"1e99", "-1.5E-99"}, {"1e100", "1e+310"}},
  };
  for (const Example& example : examples) check(example);
}

TEST_F(GrammarRules, MultiplesEnd) {
  const auto compiled = demo_grammars().engine->compile(
      format_of(Kind::kJsonSchema, R"({"type":"integer","multipleOf":7})"));
  ASSERT_TRUE(compiled);
  EXPECT_TRUE(demo_grammars().accepts(**compiled, "-14"));
  EXPECT_TRUE(demo_grammars().accepts(**compiled, "7" + std::string(17, '0')));
  EXPECT_FALSE(demo_grammars().accepts(**compiled, "15"));
  EXPECT_FALSE(demo_grammars().accepts(**compiled, "07"));
  EXPECT_FALSE(demo_grammars().accepts(**compiled, "7" + std::string(18, '0')));
}

TEST_F(GrammarRules, HalvesOfSurrogatePairsAreNoCharacters) {
  check({Kind::kJsonSchema,
         R"({"type":"string"})",
         {R"("\ud83d\ude00")", R"("\u00e9")"},
         {R"("\ud83d")", R"("\ude00")", R"("\ud83d\u0041")", R"("\ud83dx")"}});
}

TEST_F(GrammarRules, ClassesMayStandBesideADash) {
  check({Kind::kRegex, "[\\w-.]+", {"a-b.c", "-"}, {"a b"}});
}

std::string pattern_schema(const std::string& pattern) {
  return nlohmann::json({{"type", "string"}, {"pattern", pattern}}).dump();
}

// A limit is counted from each place on where its repetition may have begun.
TEST_F(GrammarRules, LimitsBeginAtOnePlaceOrAreSmall) {
  std::string hundred;
  for (int i = 0; i < 100; ++i) hundred += "[^x]{0,60000}";
  std::string twenty_of_gbnf;
  for (int i = 0; i < 20; ++i) twenty_of_gbnf += "[^x]{0,200} ";
  const std::pair<Kind, std::string> refused[] = {
      {Kind::kJsonSchema, pattern_schema("^" + hundred + "$")},
      {Kind::kRegex, hundred},
      {Kind::kRegex, "([a-zA-P]|Q" + hundred + ")"},
      {Kind::kRegex, ".{0,200}@.{0,200}"},
      {Kind::kRegex, ".*,.{0,200}"},
      {Kind::kRegex, "(.{0,100})*"},
      {Kind::kRegex, "(a|.{0,100};)*"},
      {Kind::kJsonSchema, pattern_schema("foo.{0,100}bar")},
      {Kind::kGrammar, "root ::= " + twenty_of_gbnf},
      {Kind::kGrammar, "root ::= \"\" | any root\nany ::= [^x]{0,100} \"y\"?"},
  };
  for (const auto& [kind, text] : refused) {
    const auto compiled = demo_grammars().engine->compile(format_of(kind, text));
    ASSERT_FALSE(compiled) << text.substr(0, 60);
    EXPECT_THAT(compiled.error().message(), HasSubstr("several places")) << text.substr(0, 60);
  }
  const Example allowed[] = {
      {Kind::kRegex, "[^@]{1,200}@[^@]{1,200}", {"ann@example.com"}, {"ann", "a@b@c"}},
      {Kind::kRegex, "([^,]{0,100},)*", {"a,b,,", ""}, {"a"}},
      {Kind::kRegex, ".{0,20}@.{0,20}", {"ann@example.com", "a@b@c", "@"}, {"ann"}},
      {Kind::kRegex, "x.{2,80}y?", {"xab", "xaby"}, {"xa", "y"}},
      {Kind::kJsonSchema, pattern_schema("^Mr.{1,100}$"), {"\"Mr X\""}, {"\"Mr\""}},
      {Kind::kJsonSchema, pattern_schema("foo.{0,20}bar"), {"\"a foo bar\""}, {"\"foo\""}},
      {Kind::kGrammar,
       "root ::= \"[\" item (\",\" item)* \"]\"\nitem ::= [^\\],]{1,300}",
       {"[a]", "[a,b c]"},
       {"[a,]", "[]"}},
  };
  for (const Example& example : allowed) check(example);
}

// A bound, and numbers on both sides of it.
TEST_F(GrammarRules, NumbersWithinBounds) {
  std::mt19937 random(3);
  const auto number = [&](int decimals) {
    const double scale = std::pow(10, decimals);
    return std::round((static_cast<double>(random() % 20001) - 10000) / 100 * scale) / scale;
  };
  for (int round = 0; round < 60; ++round) {
    const bool whole = round % 3 == 0;
    const double one = number(whole ? 0 : 2);
    const double other = number(whole ? 0 : 2);
    const double least = std::min(one, other);
    const double most = std::max(one, other);
    const bool excluded = round % 2 == 0;
    const bool open = round % 5 == 0;
    std::string schema = fmt::format(R"({{"type":"{}","{}":{})", whole ? "integer" : "number",
                                     excluded ? "exclusiveMinimum" : "minimum", least);
    schema += open ? "}" : fmt::format(R"(,"maximum":{}}})", most);
    const auto compiled = demo_grammars().engine->compile(format_of(Kind::kJsonSchema, schema));
    if (!compiled) {
      EXPECT_TRUE(excluded && least == most) << schema << compiled.error().message();
      continue;
    }
    for (int i = 0; i < 60; ++i) {
      const double near = i % 4 == 0 ? least : i % 4 == 1 ? most : number(2) * (i % 2 == 0 ? 1 : 3);
      const double value = whole ? std::round(near) : near + (i % 8 == 0 ? 0.001 : 0.0);
      const bool within = (excluded ? value > least : value >= least) && (open || value <= most);
      const std::string text = value == 0 ? "0" : fmt::format("{}", value);
      EXPECT_EQ(demo_grammars().accepts(**compiled, text), within) << schema << " " << text;
    }
  }
}

// Expressions by chance against the standard library's, on all short texts of two letters.
TEST_F(GrammarRules, ExpressionsMeanWhatTheyMeanElsewhere) {
  std::mt19937 random(5);
  const auto any = [&](unsigned count) { return random() % count; };
  const std::function<std::string(int)> expression = [&](int depth) -> std::string {
    static constexpr const char* kQuantifiers[] = {"",    "",      "*",    "+", "?",
                                                   "{2}", "{1,3}", "{2,}", "*?"};
    switch (depth == 0 ? any(3) : any(6)) {
      case 0:
        return "a";
      case 1:
        return "b";
      case 2:
        return any(2) == 0 ? "[^a]" : "[ab]";
      case 3:
        return expression(depth - 1) + expression(depth - 1);
      case 4:
        return "(?:" + expression(depth - 1) + "|" + expression(depth - 1) + ")";
      default:
        return "(" + expression(depth - 1) + ")" + kQuantifiers[any(9)];
    }
  };
  std::vector<std::string> texts = {""};
  for (std::size_t i = 0; i < 31; ++i) {
    texts.push_back(texts[i] + 'a');
    texts.push_back(texts[i] + 'b');
  }
  for (int round = 0; round < 150; ++round) {
    const std::string pattern = expression(4);
    const auto compiled = demo_grammars().engine->compile(format_of(Kind::kRegex, pattern));
    ASSERT_TRUE(compiled) << pattern << compiled.error().message();
    const std::regex standard(pattern);
    for (const std::string& text : texts) {
      EXPECT_EQ(demo_grammars().accepts(**compiled, text), std::regex_match(text, standard))
          << pattern << " '" << text << "'";
    }
  }
}

// A character is in a class only if it is to ECMA-262's readers, to Python's and to Rust's: U+FEFF
// is white space to the first alone, U+001F and U+0085 to others alone, an e with an accent is a
// letter of words to the last two, and so are digits of other alphabets digits.
TEST_F(GrammarRules, ClassesOfCharactersAreWhatAllReadersAgreeOn) {
  struct Class {
    const char* pattern;
    std::vector<const char*> in;
    std::vector<const char*> out;
  };
  const std::vector<Class> classes = {
      {"\\s", {" ", "\n", "\u3000"}, {"\ufeff", "\x1f", "\u0085", "a"}},
      {"\\S", {"a", "\u00e9", "\u8a9e"}, {"\ufeff", "\x1f", "\u0085", " "}},
      {"[^\\s]", {"a", "\u00e9"}, {"\ufeff", "\x1f", "\u0085", " "}},
      {"[^\\S]", {" ", "\u3000"}, {"\ufeff", "\x1f", "\u0085", "a"}},
      {"\\w", {"a", "Z", "_", "7"}, {"\u00e9", "\u0663", "-"}},
      {"\\W", {"-", " ", "\u2013"}, {"a", "\u00e9", "\u0663", "\u2460"}},
      {"[^\\w]", {"-", "\u2013"}, {"a", "\u00e9", "\u0663"}},
      {"[^\\W]", {"a", "_"}, {"\u00e9", "\u0663", "-"}},
      {"\\d", {"0", "9"}, {"\u0663", "a"}},
      {"\\D", {"a", "\u00e9", "\u8a9e", "\u2013"}, {"7", "\u0663"}},
      {"[^\\d]", {"a", "\u00e9"}, {"7", "\u0663"}},
      {"[\\s\\S]", {"a", " ", "\ufeff", "\u0663"}, {}},
      {"[\\d\\D]", {"a", "\u0663"}, {}}};
  for (const auto& [pattern, in, out] : classes) {
    const auto compiled = demo_grammars().engine->compile(format_of(Kind::kRegex, pattern));
    ASSERT_TRUE(compiled) << pattern << compiled.error().message();
    for (const char* const text : in) {
      EXPECT_TRUE(demo_grammars().accepts(**compiled, text)) << pattern << " '" << text << "'";
    }
    for (const char* const text : out) {
      EXPECT_FALSE(demo_grammars().accepts(**compiled, text)) << pattern << " '" << text << "'";
    }
  }
}

}  // namespace
}  // namespace kakeya::service
