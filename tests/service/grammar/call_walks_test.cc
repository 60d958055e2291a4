// Calls that the grammar lets a model write are calls to who reads the answer: random tools, and
// random answers that their grammar allows.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/token_mask.h"
#include "service/answer_splitter.h"
#include "service/grammar/call_rules.h"
#include "service/grammar/grammar_test.h"
#include "thorough.h"

namespace kakeya::service {
namespace {

using nlohmann::ordered_json;

constexpr ToolFormat kToolFormats[] = {ToolFormat::kGemma, ToolFormat::kQwenJson,
                                       ToolFormat::kQwenXml};

class CallWalks : public GrammarTest {
 protected:
  std::size_t below(std::size_t count) { return random_() % count; }
  template <typename Item, std::size_t kCount>
  Item one_of(const Item (&items)[kCount]) {
    return items[below(kCount)];
  }

  std::string any_name() {
    static constexpr const char* kParts[] = {"weather", "get_it", "a.b", "n-1", "x:y", "é",  "A",
                                             " ",       "<",      ">",   "{",   "\"",  "\\", "\n",
                                             ",",       "=",      "'",   "]",   ""};
    std::string name;
    // Most names are plain.
    for (std::size_t i = 0; i <= below(3); ++i) name += kParts[below(below(2) == 0 ? 7 : 19)];
    return name;
  }

  ordered_json any_value_schema(int depth) {
    switch (below(depth > 2 ? 7 : 11)) {
      case 0:
        return {{"type", "string"}};
      case 1:
        return {{"type", "integer"}};
      case 2:
        return {{"enum", {"C", 5, "F \"x\"", nullptr}}};
      case 3:
        return ordered_json::object();
      case 4:
        return {{"type", {"string", "null"}}};
      case 5:
        return {{"type", "string"}, {"enum", {"a", "b\nc"}}};
      case 6:
        return true;
      case 7:
        return {{"type", "array"}, {"items", any_value_schema(depth + 1)}, {"maxItems", 2}};
      case 8:
        return {{"anyOf", {any_value_schema(depth + 1), any_value_schema(depth + 1)}}};
      default:
        return any_parameters(depth + 1);
    }
  }

  // A tool's parameters as clients send them, with all that servers of tools leave out.
  ordered_json any_parameters(int depth) {
    ordered_json schema = ordered_json::object();
    if (below(2) == 0) schema["type"] = "object";
    if (below(8) == 0) schema["type"] = one_of({"string", "array"});
    if (below(8) == 0) schema["type"] = {"object", "null"};
    ordered_json properties = ordered_json::object();
    for (std::size_t i = below(4); i > 0; --i) properties[any_name()] = any_value_schema(depth);
    if (below(5) != 0) schema["properties"] = properties;
    if (below(3) == 0) schema["required"] = ordered_json::array();
    for (const auto& [name, value] : properties.items()) {
      if (schema.contains("required") && below(2) == 0) schema["required"].push_back(name);
    }
    if (below(4) == 0) schema["additionalProperties"] = below(2) == 0;
    if (below(8) == 0) schema["$schema"] = "http://json-schema.org/draft-07/schema#";
    if (depth > 0) return schema;
    switch (below(16)) {
      case 0:
        return {{"enum", {1, 2}}};
      case 1:
        return {{"enum", {1, {{"a", 2}}}}};
      case 2:
        return {{"anyOf", {schema, {{"type", "string"}}}}};
      case 3:
        return {{"$ref", "#/$defs/all"}, {"$defs", {{"all", schema}}}};
      case 4:
        return {{"oneOf", {{{"type", "number"}}, {{"type", "boolean"}}}}};
      default:
        return schema;
    }
  }

  std::string any_tool() {
    ordered_json function = {{"name", any_name()}};
    if (below(8) != 0) function["parameters"] = any_parameters(0);
    return ordered_json({{"type", "function"}, {"function", function}}).dump();
  }

  // An answer that the constraint allows. It tries to end what it has begun, the longer it is.
  std::vector<TokenId> walk(Constraint& constraint) {
    static constexpr const char* kEnds[] = {"<turn|>",
                                            "<tool_call|>",
                                            "\n</parameter>\n",
                                            "</function>\n</tool_call>",
                                            "\"",
                                            "<|\"|>",
                                            "}\n</tool_call>",
                                            "}",
                                            "]",
                                            "0",
                                            ":",
                                            ">\n"};
    constexpr std::size_t kMostTokens = 2000;
    const Tokenizer& tokenizer = demo_grammars().tokenizer;
    std::vector<TokenId> ids;
    while (ids.size() < kMostTokens && (ids.empty() || !is_stop(ids.back()))) {
      const bool ends = below(60) < 10 + ids.size() &&
                        append(constraint, tokenizer.encode(one_of(kEnds)).value(), ids);
      if (!ends) append(constraint, {any_allowed(constraint)}, ids);
    }
    return ids;
  }

  static bool is_stop(TokenId id) { return id == 1 || id == 50 || id == DemoGrammars::kStop; }

  static bool append(Constraint& constraint,
                     const std::vector<TokenId>& more,
                     std::vector<TokenId>& ids) {
    for (std::size_t i = 0; i < more.size(); ++i) {
      if (constraint.advance(more[i])) continue;
      constraint.roll_back(static_cast<std::int64_t>(i));
      return false;
    }
    ids.insert(ids.end(), more.begin(), more.end());
    return true;
  }

  TokenId any_allowed(Constraint& constraint) {
    std::vector<std::uint32_t> mask(DemoGrammars::kVocabulary / 32, 0);
    const bool is_masked = constraint.fill_mask(mask);
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < DemoGrammars::kVocabulary; ++id) {
      if (!is_masked || is_allowed(mask, static_cast<std::size_t>(id))) allowed.push_back(id);
    }
    return allowed.at(below(allowed.size()));
  }

  // The text of an answer, and its calls, as a client gets them.
  static std::pair<std::string, std::vector<ToolCallPiece>> read(
      ToolFormat format, const std::vector<std::string>& tools, const std::vector<TokenId>& ids) {
    auto splitter = AnswerSplitter::create(demo_grammars().tokenizer, {}, {},
                                           make_tool_parser(format, tools, false))
                        .value();
    std::string thought;
    std::string said;
    for (const TokenId id : ids) {
      if (!is_stop(id)) splitter.push(id, thought, said);
    }
    splitter.finish(thought, said);
    return {said, splitter.take_calls()};
  }

  std::mt19937 random_{7};
};

TEST_F(CallWalks, AreReadAsTheCallThatTheyAre) {
  int walked = 0;
  int refused = 0;
  for (int round = 0; round < test::by_form(300, 10'000); ++round) {
    const ToolFormat format = kToolFormats[round % 3];
    std::vector<std::string> tools;
    for (std::size_t i = 0; i <= below(3); ++i) tools.push_back(any_tool());
    if (!check_tools(format, tools)) {
      ++refused;
      continue;
    }
    CallRules rules = {.format = format, .tools = tools, .required = true, .several = false};
    find_markers(demo_grammars().tokenizer, rules);
    const auto compiled = demo_grammars().engine->compile({}, &rules);
    if (!compiled) continue;  // too large, or a schema that nothing meets
    const auto constraint = (*compiled)->constrain({}, false);
    const std::vector<TokenId> ids = walk(*constraint);
    const auto [said, calls] = read(format, tools, ids);
    const std::string shown =
        fmt::format("round {}, tools {}, text {}", round, fmt::join(tools, " "),
                    demo_grammars().tokenizer.decode(ids, false));
    ASSERT_EQ(said, "") << shown;
    ASSERT_EQ(calls.size(), 1u) << shown;
    const auto is_called = [&name = calls[0].name](const std::string& tool) {
      return ordered_json::parse(tool)["function"]["name"] == name;
    };
    ASSERT_EQ(std::count_if(tools.begin(), tools.end(), is_called), 1) << shown << calls[0].name;
    ASSERT_TRUE(ordered_json::parse(calls[0].arguments, nullptr, false).is_object())
        << shown << calls[0].arguments;
    ++walked;
  }
  EXPECT_GT(walked, test::by_form(80, 3000));
  EXPECT_GT(refused, 0);
}

TEST(ToolsOfAFormat, HaveNamesThatItCanWrite) {
  const auto tool = [](const std::string& name, const std::string& parameters) {
    return R"({"type":"function","function":{"name":)" + ordered_json(name).dump() +
           R"(,"parameters":)" + parameters + "}}";
  };
  const auto refused = [&](ToolFormat format, const std::string& name,
                           const std::string& parameters = "{}") -> std::string {
    const Status sound = check_tools(format, {tool(name, parameters)});
    return sound ? "" : sound.error().message();
  };
  for (const ToolFormat format : kToolFormats) {
    EXPECT_EQ(refused(format, "get_weather.v2-x"), "");
    EXPECT_EQ(refused(format, "é"), "");
    EXPECT_NE(refused(format, ""), "");
    EXPECT_EQ(refused(format, "f", R"({"properties":{}})"), "");
    EXPECT_EQ(refused(format, "f", R"({"type":["object","null"]})"), "");
    EXPECT_EQ(refused(format, "f", R"({"uniqueItems":true})"), "") << "it is not enforced";
    for (const char* const other :
         {R"({"type":"string"})", R"({"enum":[1,2]})", R"({"type":["string"],"uniqueItems":true})",
          R"({"anyOf":[{"type":"null"},{"$ref":"#/$defs/a"}],"$defs":{"a":{"const":"x"}}})",
          R"("object")", "[]"}) {
      EXPECT_NE(refused(format, "f", other), "") << other;
    }
    EXPECT_TRUE(check_tools(format, {tool("f", "{}"), tool("g", "{}")}));
    EXPECT_FALSE(check_tools(format, {tool("f", "{}"), tool("f", "{}")}));
  }
  EXPECT_EQ(refused(ToolFormat::kQwenJson, "my \"tool\""), "");
  EXPECT_NE(refused(ToolFormat::kGemma, "my tool"), "");
  EXPECT_NE(refused(ToolFormat::kGemma, "a{b"), "");
  EXPECT_NE(refused(ToolFormat::kQwenXml, "my tool"), "");
  EXPECT_NE(refused(ToolFormat::kQwenXml, "a>b"), "");
  // Calls of other models are not read.
  EXPECT_EQ(refused(ToolFormat::kNone, "my tool"), "");
  EXPECT_FALSE(check_tools(ToolFormat::kNone, {tool("f", "{}"), tool("f", "{}")}));
}

}  // namespace
}  // namespace kakeya::service
