// JSON of strangers: the values that nlohmann's own reader gives, in a time that a hostile text
// cannot stretch.
#include "base/bounded_json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/clock.h"

namespace kakeya {
namespace {

using nlohmann::ordered_json;

// A random value; few names, so that members repeat some.
std::string random_json(std::mt19937& random, int depth) {
  const auto kind = random() % (depth > 0 ? 8 : 6);
  switch (kind) {
    case 0:
      return "null";
    case 1:
      return random() % 2 == 0 ? "true" : "false";
    case 2:
      return std::to_string(static_cast<std::int64_t>(random()) - (std::int64_t{1} << 31));
    case 3:
      return "18446744073709551615";
    case 4:
      return fmt::format("{}.5e{}", random() % 100, random() % 20);
    case 5:
      return R"("a\u00e9\ud83d\ude00\n b")";
    default:
      break;
  }
  std::string text = kind == 6 ? "[" : "{";
  const auto count = random() % 5;
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) text += " ,\n";
    if (kind == 7) text += fmt::format("\"name {}\" : ", random() % 4);
    text += random_json(random, depth - 1);
  }
  return text + (kind == 6 ? "]" : "}");
}

TEST(BoundedJson, ReadsWhatNlohmannReads) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = random_json(random, 5);
    const auto read = read_json(text);
    ASSERT_TRUE(read.has_value()) << text;
    EXPECT_EQ(read->dump(), ordered_json::parse(text).dump()) << text;
    EXPECT_TRUE(is_json(text));
  }
}

TEST(BoundedJson, OfRepeatedMembersTheLastCountsInTheFirstPlace) {
  EXPECT_EQ(read_json(R"({"a": 1, "b": 2, "a": 3, "c": {"x": 1, "x": {}}, "a": 4})")->dump(),
            R"({"a":4,"b":2,"c":{"x":{}}})");
}

TEST(BoundedJson, NoJsonIsRefusedInAFewWords) {
  const auto refused = [](std::string_view text, const std::string& expected) {
    const auto read = read_json(text, {.depth = 3, .values = 6});
    ASSERT_FALSE(read.has_value()) << text;
    EXPECT_EQ(read.error().message(), expected) << text;
    EXPECT_FALSE(is_json(text, {.depth = 3, .values = 6})) << text;
  };
  refused("", "expected JSON, got an error at byte 1");
  refused("{\"a\": 1} x", "expected JSON, got an error at byte 10");
  refused("\"\xff\"", "expected JSON, got an error at byte 2");
  refused("[[[[]]]]", "expected at most 3 levels of JSON, got more");
  refused("[[[[", "expected at most 3 levels of JSON, got more");
  refused("[1,1,1,1,1,1]", "expected at most 6 JSON values, got more");
  EXPECT_EQ(read_json("[1e999]").error().message(),
            "expected JSON, got a number beyond all bounds");
}

// Seconds of the square of these would be minutes.
TEST(BoundedJson, TakesTimeByTheBytes) {
  std::string same = "{\"a\":0";
  std::string others = "{\"a\":0";
  for (int i = 0; i < 250'000; ++i) {
    same += ",\"a\":1";
    others += fmt::format(",\"{}\":1", i);
  }
  const ThreadTime time;
  EXPECT_EQ(read_json(same + "}")->size(), 1U);
  EXPECT_EQ(read_json(others + "}")->size(), 250'001U);
  EXPECT_LT(time.seconds(), 10.0);
}

}  // namespace
}  // namespace kakeya
