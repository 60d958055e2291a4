// Calls of tools as grammars: names, arguments, text around calls.
#include "service/grammar/call_rules.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "service/grammar/grammar_test.h"

namespace kakeya::service {
namespace {

using CallGrammars = GrammarTest;

constexpr const char* kWeather =
    R"({"type":"function","function":{"name":"weather","parameters":{"type":"object","required":["place"],)"
    R"("properties":{"place":{"type":"string"},"Days":{"type":"integer"},"in":{"type":"object","properties":{"u":{"enum":["C","F"]}}},)"
    R"("tags":{"type":"array","items":{"type":"string","maxLength":3}}}}}})";
constexpr const char* kNow = R"({"type":"function","function":{"name":"now"}})";

CallRules rules_of(ToolFormat format) {
  CallRules rules = {.format = format, .tools = {kWeather, kNow}};
  find_markers(demo_grammars().tokenizer, rules);
  return rules;
}

void check(const CallRules& rules,
           const std::vector<std::string>& accepted,
           const std::vector<std::string>& rejected) {
  const auto compiled = demo_grammars().engine->compile({}, &rules);
  ASSERT_TRUE(compiled) << compiled.error().message();
  const Tokenizer& tokenizer = demo_grammars().tokenizer;
  for (const std::string& text : accepted) {
    EXPECT_TRUE(demo_grammars().accepts(**compiled, tokenizer.encode(text).value())) << text;
  }
  for (const std::string& text : rejected) {
    EXPECT_FALSE(demo_grammars().accepts(**compiled, tokenizer.encode(text).value())) << text;
  }
}

TEST_F(CallGrammars, GemmaCallsAreHeldToTheirSchemas) {
  CallRules rules = rules_of(ToolFormat::kGemma);
  const std::string good =
      R"(<|tool_call>call:weather{Days:2,in:{u:<|"|>C<|"|>},place:<|"|>Bern "x"<|"|>,tags:[<|"|>a<|"|>,<|"|>b<|"|>]}<tool_call|>)";
  const std::string now = "<|tool_call>call:now{}<tool_call|>";
  const std::vector<std::string> bad = {
      R"(<|tool_call>call:weather{}<tool_call|>)",
      R"(<|tool_call>call:whether{}<tool_call|>)",
      R"(<|tool_call>call:weather{place:Bern}<tool_call|>)",
      R"(<|tool_call>call:weather{place:<|"|>a<|"|>,tags:[<|"|>long<|"|>]}<tool_call|>)",
      R"(<|tool_call>call:weather{place:<|"|>a<|"|>)",
      R"(a <tool_call|>)"};
  std::vector<std::string> free_bad = bad;
  check(rules, {"Just text.", "Let me see. " + good, good + now, ""}, free_bad);
  rules.required = true;
  std::vector<std::string> forced_bad = bad;
  forced_bad.insert(forced_bad.end(), {"Just text.", "", "a " + now});
  check(rules, {good, now, good + now}, forced_bad);
  rules.only = "now";
  rules.several = false;
  check(rules, {now}, {good, now + now});
}

TEST_F(CallGrammars, QwenCallsAreHeldToTheirSchemas) {
  CallRules rules = rules_of(ToolFormat::kQwenJson);
  const std::string good =
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"place\": \"Bern\", \"Days\": "
      "2}}\n</tool_call>";
  const std::string now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const std::vector<std::string> bad = {
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"else\", \"arguments\": {}}\n</tool_call>", "<tool_call>"};
  check(rules, {"Just text < 3.", "See: " + good, good + "\n" + now}, bad);
  rules.required = true;
  check(rules, {good, good + "\n" + now}, {"Just text", "", "a" + now});
}

TEST_F(CallGrammars, CallsWithTagsAreHeldToTheirSchemas) {
  CallRules rules = rules_of(ToolFormat::kQwenXml);
  rules.tools = {
      R"({"type":"function","function":{"name":"weather","parameters":{"type":"object","required":["place","unit"],)"
      R"("properties":{"place":{"type":"string"},"days":{"type":"integer"},"unit":{"type":"string","enum":["C","F"]}}}}})",
      R"({"type":"function","function":{"name":"any","parameters":{"type":"object"}}})", kNow};
  const auto call = [](const std::string& name, const std::string& parameters) {
    return "<tool_call>\n<function=" + name + ">\n" + parameters + "</function>\n</tool_call>";
  };
  const auto parameter = [](const std::string& name, const std::string& value) {
    return "<parameter=" + name + ">\n" + value + "\n</parameter>\n";
  };
  const std::string unit = parameter("unit", "C");
  const std::string good =
      call("weather", parameter("place", "a </param> < b\n\n</") + parameter("days", "3") + unit);
  const std::vector<std::string> bad = {
      call("weather", parameter("place", "a")),
      call("weather", parameter("place", "a") + parameter("days", "few") + unit),
      call("weather", parameter("place", "a</parameter>b") + unit),
      call("weather", parameter("place", "a") + parameter("unit", "K")), call("else", "")};
  rules.required = true;
  check(rules,
        {good, call("now", ""), call("any", parameter("x", "y\nz") + parameter("u", "")),
         good + "\n" + good},
        bad);
}

TEST_F(CallGrammars, AnAnswerIsOfItsFormOrCalls) {
  const CallRules rules = rules_of(ToolFormat::kGemma);
  const auto compiled = demo_grammars().engine->compile(
      format_of(AnswerFormat::Kind::kJsonSchema, R"({"type":"boolean"})"), &rules);
  ASSERT_TRUE(compiled);
  const Tokenizer& tokenizer = demo_grammars().tokenizer;
  const auto accepts = [&](const char* text) {
    return demo_grammars().accepts(**compiled, tokenizer.encode(text).value());
  };
  EXPECT_TRUE(accepts("true"));
  EXPECT_TRUE(accepts("<|tool_call>call:now{}<tool_call|>"));
  EXPECT_FALSE(accepts("yes"));
  EXPECT_FALSE(accepts("true<|tool_call>call:now{}<tool_call|>"));
}

}  // namespace
}  // namespace kakeya::service
