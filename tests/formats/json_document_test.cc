#include "formats/json_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "formats/scratch_files.h"

namespace kakeya {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string parse_error(std::string_view text) {
  const auto document = JsonDocument::parse(text);
  EXPECT_FALSE(document.has_value()) << text.substr(0, 80);
  return document ? "" : document.error().message();
}

std::string nested(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

JsonFields fields_of(const JsonDocument& document) {
  return JsonFields(document.root().get_object().value(), "outer.");
}

TEST(JsonDocument, RefusesNestingBeyondTheLimitInOneLine) {
  EXPECT_TRUE(JsonDocument::parse(nested(JsonDocument::kMaxDepth - 1)).has_value());
  EXPECT_THAT(parse_error(nested(JsonDocument::kMaxDepth + 1)), HasSubstr("deeper than 64 levels"));
  EXPECT_THAT(parse_error(nested(1'000'000)), HasSubstr("deeper than 64 levels"));
  EXPECT_THAT(parse_error(std::string(1'000'000, '[')), Not(HasSubstr("\n")));
}

TEST(JsonDocument, RefusesADuplicateKeyAtAnyDepth) {
  EXPECT_THAT(parse_error(R"({"a":1,"a":1})"), HasSubstr("duplicate key \"a\""));
  EXPECT_THAT(parse_error(R"([{"x":{"b\n":1,"c":2,"b\n":3}}])"),
              HasSubstr("duplicate key \"b\\x0a\""));
}

TEST(JsonDocument, RefusesTextThatIsNotJsonOrNotUtf8) {
  EXPECT_THAT(parse_error(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error("{\"a\":"), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error("{\"a\":1} trailing"), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error("{\"\xff\":1}"), HasSubstr("not valid UTF-8"));
}

TEST(JsonDocument, SaysWhichMistakeAWriterMade) {
  EXPECT_THAT(parse_error("\xEF\xBB\xBF{\"a\":1}"), HasSubstr("byte order mark"));
  EXPECT_THAT(parse_error(R"({"a": Infinity})"), HasSubstr("got Infinity, which JSON does not"));
  EXPECT_THAT(parse_error(R"({"a": [1, -Infinity]})"), HasSubstr("got -Infinity"));
  EXPECT_THAT(parse_error(R"({"a": NaN})"), HasSubstr("got NaN"));
  EXPECT_THAT(parse_error(R"({"a \" NaN": "Infinity" 3})"), Not(HasSubstr("got")));
  EXPECT_TRUE(JsonDocument::parse(R"({"a": "NaN"})").has_value());
}

TEST(JsonFields, NamesTheFieldTheRangeAndTheValue) {
  const auto document = JsonDocument::parse(R"({"size":-1,"rate":"fast","list":[1,"x"],"on":1})");
  ASSERT_TRUE(document.has_value());
  const JsonFields fields = fields_of(*document);
  EXPECT_EQ(message_of(fields.integer("size", {0, 9})),
            "outer.size: expected an integer from 0 to 9, got -1");
  EXPECT_EQ(message_of(fields.integer("absent", {0, 9})),
            "outer.absent: expected an integer, got nothing");
  EXPECT_EQ(message_of(fields.number_or("rate", 1, {0, 2})),
            "outer.rate: expected a number from 0 to 2, got \"fast\"");
  EXPECT_EQ(message_of(fields.integers("list", {0, 9})),
            "outer.list: expected an integer from 0 to 9, got \"x\"");
  EXPECT_EQ(message_of(fields.boolean_or("on", false)), "outer.on: expected true or false, got 1");
}

TEST(JsonFields, TakesNullAsAbsentAndASingleNumberAsAList) {
  const auto document = JsonDocument::parse(R"({"size":null,"id":7,"half":5.0})");
  ASSERT_TRUE(document.has_value());
  const JsonFields fields = fields_of(*document);
  EXPECT_EQ(fields.integer_or("size", 3, {0, 9}).value(), 3);
  EXPECT_EQ(fields.integers("id", {0, 9}).value(), std::vector<std::int64_t>{7});
  EXPECT_FALSE(fields.integer("half", {0, 9}).has_value());
}

}  // namespace
}  // namespace kakeya
