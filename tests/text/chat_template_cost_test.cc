// Templates that make single steps expensive: each ends with an error before a second is over.
#include <gmock/gmock.h>

#include "base/clock.h"
#include "text/chat_template.h"
#include "text/text_test_util.h"

namespace kakeya {
namespace {

using ::testing::HasSubstr;

#if defined(KAKEYA_SANITIZED)
constexpr double kMaxTemplateSeconds = 20;
#else
constexpr double kMaxTemplateSeconds = 1;
#endif

// The limit of time is far off: the steps must tell.
void expect_costs_too_much(const std::string& source) {
  const auto parsed = ChatTemplate::parse(source);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
  RenderOptions options;
  options.limits.max_seconds = 1000;
  options.limits.max_steps /= 4;
  const ThreadTime time;
  const auto text = parsed->render(nlohmann::ordered_json::object(), options);
  const double elapsed = time.seconds();
  const std::string what = source.substr(0, 200);
  EXPECT_LT(elapsed, kMaxTemplateSeconds) << what;
  ASSERT_FALSE(text.has_value()) << what << ": " << text->substr(0, 100);
  EXPECT_EQ(text.error().code(), StatusCode::kResourceExhausted) << text.error().message();
}

// An expression that is evaluated a hundred thousand times with a text of 20 MB.
class CostOfALongText : public testing::TestWithParam<const char*> {};

TEST_P(CostOfALongText, IsCharged) {
  expect_costs_too_much(
      fmt::format("{{% set s = 'a' * 20000000 %}}{{% set d = {{'k': 1}} %}}"
                  "{{% set ns = namespace(a=1) %}}{{% for i in range(100000) %}}"
                  "{{% set x = {} %}}{{% endfor %}}",
                  GetParam()));
}

INSTANTIATE_TEST_SUITE_P(OfEachKind,
                         CostOfALongText,
                         testing::Values("d[s]",
                                         "d.get(s)",
                                         "ns[s]",
                                         "i[s]",
                                         "s in d",
                                         "{s: 1}",
                                         "s|int",
                                         "s|length",
                                         "s|trim(s)",
                                         "s.strip('bcda')",
                                         "s.startswith(s)",
                                         "s == s",
                                         "s < s ~ 'b'",
                                         "[s] < [s]",
                                         "s.find('b')",
                                         "'b' in s",
                                         "s[0]",
                                         "s[1:2]",
                                         "[1]|join(s)",
                                         "1|default(s, s)",
                                         "[]|tojson(separators=(s, s))",
                                         "{s: 1}|tojson(sort_keys=true)",
                                         "s|replace('b', 'c')",
                                         "s|indent",
                                         "strftime_now(s)",
                                         "s is eq(s)",
                                         "{s: 1}|dictsort",
                                         "s|upper",
                                         "s|title",
                                         "s|list",
                                         "s|first",
                                         "s.split('b')",
                                         "s.capitalize()"));

TEST(CostOfNames, IsCharged) {
  std::string variables;
  std::string attributes;
  for (int i = 0; i < 20'000; ++i) {
    variables += fmt::format("{{% set a{}=i %}}", i);
    attributes += fmt::format("{{% set ns.a{}=i %}}", i);
  }
  expect_costs_too_much("{% for i in range(60) %}" + variables + "{% endfor %}");
  expect_costs_too_much("{% set ns=namespace() %}{% for i in range(60) %}" + attributes +
                        "{% endfor %}");
}

TEST(CostOfNames, OfKeywordsIsCharged) {
  std::string names;
  std::string keywords;
  for (int i = 0; i < 50'000; ++i) {
    names += fmt::format("{}a{}", i == 0 ? "" : ",", i);
    keywords += fmt::format("{}a{}=i", i == 0 ? "" : ",", i);
  }
  const std::string loop = "{% for i in range(100) %}";
  expect_costs_too_much("{% macro f(" + names + ") %}{% endmacro %}" + loop + "{{ f(" + keywords +
                        ") }}{% endfor %}");
  expect_costs_too_much(loop + "{% set x = namespace(" + keywords + ") %}{% endfor %}");
  EXPECT_THAT(ChatTemplate::parse("{{ " + std::string(2000, 'x') + " }}").error().message(),
              HasSubstr("a name exceeds 1024 bytes"));
}

// Long paths are refused for themselves.
TEST(CostOfNames, PathsOfAttributesAreBounded) {
  const auto parsed = ChatTemplate::parse("{{ [1]|map(attribute='a.' * 10000000)|list }}");
  const auto text = parsed->render(nlohmann::ordered_json::object());
  ASSERT_FALSE(text.has_value());
  EXPECT_THAT(text.error().message(), HasSubstr("exceeds 1024 bytes"));
}

TEST(CostOfTime, IsTheLastResort) {
  const auto parsed = ChatTemplate::parse("{% for i in range(100000) %}{{ i }}{% endfor %}");
  RenderOptions options;
  options.limits.max_seconds = 1e-3;
  const auto text = parsed->render(nlohmann::ordered_json::object(), options);
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(text.error().message(), HasSubstr("more than 0.001 seconds"));
}

TEST(CostOfNumbers, TextsOfManyDigitsAreNone) {
  const auto parsed =
      ChatTemplate::parse("{{ ('1' * 5000)|int(7) }} {{ ' 12 '|int }} {{ '1.5'|int }}");
  EXPECT_EQ(parsed->render(nlohmann::ordered_json::object()).value(), "7 12 1");
}

}  // namespace
}  // namespace kakeya
