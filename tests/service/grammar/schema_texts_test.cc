// Texts that have to meet a pattern, a format, look-ahead and lengths together.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "service/grammar/grammar_test.h"
#include "service/grammar/pattern_rules.h"
#include "service/grammar/schema.h"

namespace kakeya::service {
namespace {

using nlohmann::ordered_json;
using SchemaTexts = GrammarTest;

// All texts of the letters, of at most so many.
std::vector<std::string> texts_of_letters(std::string_view letters, std::size_t most) {
  std::vector<std::string> texts = {""};
  for (std::size_t begin = 0, length = 0; length < most; ++length) {
    const std::size_t end = texts.size();
    for (; begin < end; ++begin) {
      for (const char letter : letters) texts.push_back(texts[begin] + letter);
    }
  }
  return texts;
}

Result<std::shared_ptr<const CompiledGrammar>> compile(const ordered_json& schema) {
  return demo_grammars().engine->compile(format_of(AnswerFormat::Kind::kJsonSchema, schema.dump()));
}

// ECMA-262's expressions as the standard library reads them say which texts are to be accepted.
TEST_F(SchemaTexts, MeetPatternsAndLengthsTogether) {
  const char* const kPatterns[] = {"^[a-z]+$",
                                   "^(ab)*$",
                                   "b",
                                   "^a",
                                   "^a?b{1,2}(a|-)*$",
                                   "^(?!.*--)[ab-]*$",
                                   "^(?=.*a)(?=.*b).*$",
                                   "^(?!a$|b$)[ab]+$",
                                   "^(?=.{2,3}$)[ab]+-?$"};
  const std::vector<std::string> texts = texts_of_letters("ab-", 5);
  for (const char* const pattern : kPatterns) {
    const std::regex expression(pattern, std::regex::ECMAScript);
    for (const auto& [least, most] : std::vector<std::pair<int, std::optional<int>>>{
             {0, {}}, {2, {}}, {0, 3}, {2, 4}, {3, 3}}) {
      ordered_json schema = {{"type", "string"}, {"pattern", pattern}};
      if (least > 0) schema["minLength"] = least;
      if (most) schema["maxLength"] = *most;
      const auto compiled = compile(schema);
      for (const std::string& text : texts) {
        const bool is_valid = std::regex_search(text, expression) && std::ssize(text) >= least &&
                              (!most || std::ssize(text) <= *most);
        const bool accepts = compiled && demo_grammars().accepts(**compiled, '"' + text + '"');
        EXPECT_EQ(accepts, is_valid) << schema << " " << text;
      }
    }
  }
}

// Schemas as generators write them: all of each is enforced.
TEST_F(SchemaTexts, OfGeneratorsAreWhollyEnforced) {
  struct Whole {
    ordered_json schema;
    std::vector<std::string> accepted;
    std::vector<std::string> rejected;
  };
  const Whole examples[] = {
      // Zod 4's z.email().
      {{{"type", "string"},
        {"format", "email"},
        {"pattern",
         R"(^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$)"}},
       {"ann@example.com", "a.b+c@x.example.org"},
       {"ann@example", "ann", "a#b@example.com", ".a@example.com"}},
      // pydantic's HttpUrl.
      {{{"type", "string"}, {"format", "uri"}, {"minLength", 1}, {"maxLength", 2083}},
       {"https://example.com/a"},
       {"example.com"}},
      {{{"type", "string"}, {"pattern", "^[a-z0-9-]+$"}, {"maxLength", 200}},
       {"a-b", std::string(200, 'a')},
       {"", "A", std::string(201, 'a')}},
      {{{"type", "string"}, {"format", "email"}, {"maxLength", 254}},
       {"ann@example.com"},
       {std::string(60, 'a') + "@example.com"}},
      {{{"type", "string"}, {"pattern", "^(?=.*[a-z])(?=.*[A-Z])(?=.*\\d)[a-zA-Z\\d]{8,20}$"}},
       {"aB345678", "00000aA0"},
       {"aB34567", "ab345678", "aBcdefgh", "aB345678-"}},
      {{{"type", "string"}, {"pattern", "^[\\s\\S]+$"}, {"maxLength", 4}},
       {"a b", R"(a\nb)"},
       {"", "abcde"}},
      {{{"type", "string"}, {"format", "uuid"}, {"maxLength", 36}},
       {"123e4567-e89b-12d3-a456-426614174000"},
       {"123e4567"}}};
  for (const Whole& example : examples) {
    const auto compiled = compile(example.schema);  // strict: what is not enforced is refused
    ASSERT_TRUE(compiled) << example.schema << ": " << compiled.error().message();
    for (const std::string& text : example.accepted) {
      EXPECT_TRUE(demo_grammars().accepts(**compiled, '"' + text + '"')) << example.schema << text;
    }
    for (const std::string& text : example.rejected) {
      EXPECT_FALSE(demo_grammars().accepts(**compiled, '"' + text + '"')) << example.schema << text;
    }
  }
}

TEST_F(SchemaTexts, RefusalsAndBoundsAreNamed) {
  const auto refused = [](const ordered_json& schema) -> std::string {
    Effort effort;
    const auto read = read_schema(schema.dump(), {}, effort);
    return read ? "" : read.error().message();
  };
  EXPECT_EQ(refused({{"type", "string"}, {"pattern", "^a{3}$"}, {"maxLength", 2}}),
            "JSON schema: a pattern, format and length that no text meets at # is not supported");
  EXPECT_EQ(refused({{"type", "string"}, {"format", "ipv4"}, {"pattern", "^x"}}),
            "JSON schema: a pattern, format and length that no text meets at # is not supported");
  EXPECT_EQ(refused({{"type", "string"}, {"pattern", "^(?=.*a).{8,200}$"}}),
            "JSON schema: pattern: so many rules at # is not supported");
  Effort effort;
  EXPECT_FALSE(automaton_of("^((((a{90}){90}){90}){90}){90}$", effort));
  EXPECT_TRUE(automaton_of("(a|b)*a(a|b){5}", effort));
  EXPECT_FALSE(automaton_of("(a|b)*a(a|b){14}", effort));
  // Many texts of a schema share what automata may take.
  ordered_json many = {{"type", "object"}, {"required", ordered_json::array()}};
  for (int i = 0; i < 20; ++i) {
    many["properties"][fmt::format("p{}", i)] = {
        {"type", "string"}, {"pattern", fmt::format("^(?=.*{})[a-z0-9]{{1,90}}$", i)}};
  }
  EXPECT_THAT(refused(many), testing::HasSubstr("pattern: so many rules at #/properties/p1"));
}

// One schema takes no more than a second, whatever its patterns and divisors ask for: those that
// come too late are not read.
TEST_F(SchemaTexts, ShareOneEffort) {
  const auto members = [](int count, const auto& schema_of) {
    ordered_json schema = {{"type", "object"}};
    for (int i = 0; i < count; ++i) schema["properties"][fmt::format("p{}", i)] = schema_of(i);
    AnswerFormat format = format_of(AnswerFormat::Kind::kJsonSchema, schema.dump());
    format.schema.strict = false;
    return format;
  };
  const auto costly = grammar_of(members(100, [](int i) {
    const std::string pattern = fmt::format("^[^x]{{0,300}}[^y]{{0,300}}{}$", i);
    return ordered_json{{"type", "string"}, {"pattern", pattern}};
  }));
  ASSERT_TRUE(costly);
  EXPECT_THAT(costly->notes.front(), testing::HasSubstr("several places"));
  EXPECT_THAT(costly->notes.back(), testing::HasSubstr("fewer ways to read one text"));
  EXPECT_TRUE(grammar_of(members(200, [](int i) {
    return ordered_json{{"type", "integer"}, {"multipleOf", 7 + i % 4}};
  })));
  const auto divided = grammar_of(members(250, [](int i) {
    return ordered_json{{"type", "integer"}, {"multipleOf", i + 2}};
  }));
  ASSERT_FALSE(divided);
  EXPECT_EQ(divided.error().message(), "JSON schema: so many divisors are not supported");
}

}  // namespace
}  // namespace kakeya::service
