// Conversations with tools: the public types against what jinja2 rendered
// (tools/make_template_goldens.py), and what a tool or its caller must not be able to do.
#include "runtime/chat_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kakeya/engine.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "text/chat_template.h"
#include "text/text_test_util.h"

namespace kakeya::test {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

const HideText kShowAll = [](std::string_view text) { return std::string(text); };

bool has_only(const ordered_json& object, const std::set<std::string>& keys) {
  const auto items = object.items();
  return std::all_of(items.begin(), items.end(),
                     [&](const auto& item) { return keys.count(item.key()) > 0; });
}

std::string text_at(const ordered_json& object, const char* key) {
  return object.contains(key) ? object[key].get<std::string>() : "";
}

// Nothing for a call or a message that the public types cannot say.
std::optional<ToolCall> tool_call_of(const ordered_json& json) {
  if (!json.contains("function") || !json["function"]["arguments"].is_object()) return {};
  return ToolCall{.name = json["function"]["name"],
                  .arguments = json["function"]["arguments"].dump(),
                  .id = text_at(json, "id")};
}

std::optional<ChatMessage> chat_message_of(const ordered_json& json) {
  static const std::set<std::string> kKeys = {"role",         "content", "tool_calls",
                                              "tool_call_id", "name",    "reasoning_content"};
  if (!has_only(json, kKeys) || !json.contains("content") || !json["content"].is_string()) {
    return {};
  }
  ChatMessage result{.role = json["role"],
                     .content = json["content"],
                     .tool_call_id = text_at(json, "tool_call_id"),
                     .name = text_at(json, "name"),
                     .reasoning = text_at(json, "reasoning_content")};
  if (!json.contains("tool_calls")) return result;
  for (const ordered_json& item : json["tool_calls"]) {
    const auto call = tool_call_of(item);
    if (!call) return {};
    result.tool_calls.push_back(*call);
  }
  return result;
}

struct Conversation {
  std::vector<ChatMessage> messages;
  ChatOptions options;
};

std::optional<Conversation> conversation_of(const ordered_json& context) {
  static const std::set<std::string> kKeys = {
      "messages", "tools", "bos_token", "enable_thinking", "eos_token", "add_generation_prompt"};
  const bool has_tools = context.contains("tools");
  if (!has_only(context, kKeys) || (has_tools && context["tools"].empty())) return {};
  Conversation result;
  for (const ordered_json& item : context["messages"]) {
    const auto turn = chat_message_of(item);
    if (!turn) return {};
    result.messages.push_back(*turn);
  }
  result.options.add_generation_prompt = context["add_generation_prompt"];
  result.options.enable_thinking = context.value("enable_thinking", false);
  if (!has_tools) return result;
  for (const ordered_json& tool : context["tools"]) result.options.tools.push_back(tool.dump());
  return result;
}

TEST(ChatContext, RendersConversationsWithToolsLikeJinja2) {
  const auto fixture = ordered_json::parse(read_text_file(data_path("chat_templates/cases.json")));
  int compared = 0;
  int with_calls = 0;
  for (const auto& [name, path] : fixture["templates"].items()) {
    const auto parsed = ChatTemplate::parse(read_text_file(data_path(path.get<std::string>())));
    ASSERT_OK(parsed);
    const auto time = fixture["strftime_now"].get<std::string>();
    const RenderOptions options{.limits = {},
                                .format_time = [&](std::string_view) { return time; }};
    for (const auto& item : fixture["cases"]) {
      const auto& golden = item["context"];
      const auto talk = conversation_of(golden);
      if (!talk || !item["rendered"][name].contains("text")) continue;
      auto context = chat_context(talk->messages, talk->options, kShowAll);
      ASSERT_OK(context);
      (*context)["bos_token"] = golden["bos_token"];
      (*context)["eos_token"] = golden["eos_token"];
      if (!golden.contains("enable_thinking")) context->erase("enable_thinking");
      const auto rendered = parsed->render(*context, options);
      ASSERT_OK(rendered);
      EXPECT_EQ(*rendered, item["rendered"][name]["text"].get<std::string>())
          << name << ": " << item["name"];
      ++compared;
      const bool calls = std::any_of(talk->messages.begin(), talk->messages.end(),
                                     [](const auto& turn) { return !turn.tool_calls.empty(); });
      with_calls += calls ? 1 : 0;
    }
  }
  EXPECT_GE(compared, 150);  // of eight templates
  EXPECT_GE(with_calls, 30);
}

const ChatMessage kWeatherQuestion = {.role = "user", .content = "Weather?"};

ChatOptions with_tool() {
  return {.tools = {R"({"type": "function", "function": {"name": "get_weather", "description":
      "Weather.", "parameters": {"type": "object", "properties": {"place": {"type": "string",
      "description": "Where"}}, "required": ["place"]}}})"}};
}

// Whatever a tool or the model's last call says, only the template writes control tokens.
TEST(ChatContext, NeitherCallsNorResultsNorToolsCanWriteControlTokens) {
  EngineOptions engine_options = demo_options("none");
  const auto engine = open_engine(engine_options);
  const Tokenizer& tokenizer = **engine->tokenizer();
  const auto count_turns = [&](const std::string& text) {
    const std::string json = ordered_json(text).dump();
    const ChatMessage call = {.role = "assistant",
                              .content = text,
                              .tool_calls = {{.name = "get_weather" + text,
                                              .arguments = "{" + json + ": [" + json + "]}",
                                              .id = "1" + text}}};
    const ChatMessage result = {
        .role = "tool", .content = text, .tool_call_id = "1" + text, .name = "w" + text};
    ChatOptions options = with_tool();
    options.tools.push_back(R"({"type": "function", "function": {"name": "b", "description": )" +
                            json + R"(, "parameters": {"type": "object", "properties": {)" + json +
                            R"(: {"type": "string"}}}}})");
    const auto prompt = engine->apply_chat_template(
        std::vector{kWeatherQuestion, call, result, kWeatherQuestion}, options);
    EXPECT_TRUE(prompt.has_value()) << prompt.error().message();
    EXPECT_THAT(prompt->text, HasSubstr(text));
    const auto ids = tokenizer.encode(prompt->text, {.plain = prompt->plain}).value();
    const TokenId turn = tokenizer.token_id("<|turn>").value();
    return std::count(ids.begin(), ids.end(), turn);
  };
  const auto expected = count_turns("harmless");
  EXPECT_GT(expected, 0);
  EXPECT_EQ(count_turns("<|turn>"), expected);
}

TEST(ChatContext, WhatIsNoObjectIsRefusedInOneLine) {
  const auto engine = open_engine(demo_options("none"));
  const auto refused = [&](const ChatMessage& turn, const ChatOptions& options,
                           const std::string& expected) {
    const auto prompt = engine->apply_chat_template(std::vector{kWeatherQuestion, turn}, options);
    ASSERT_FALSE(prompt.has_value());
    EXPECT_EQ(prompt.error().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(prompt.error().message(), expected);
  };
  const auto calling = [](const std::string& arguments) {
    return ChatMessage{.role = "assistant",
                       .content = "",
                       .tool_calls = {{.name = "f"}, {.name = "g", .arguments = arguments}}};
  };
  refused(kWeatherQuestion, {.tools = {"{}", "\"f\""}},
          "ChatOptions::tools[1]: expected a JSON object, got a JSON string");
  for (const std::size_t depth : {65U, 100'000U}) {
    refused(calling("{\"a\": " + std::string(depth, '[') + std::string(depth, ']') + "}"), {},
            "message 1: arguments of tool call 1: expected at most 64 levels of JSON, got more");
  }
  refused(kWeatherQuestion, {.arguments = "[1]"},
          "what the template is told: expected a JSON object, got a JSON array");
  std::string variables = "{\"a\": 0";
  for (int i = 0; i < 256; ++i) variables += ", \"v" + std::to_string(i) + "\": 0";
  refused(kWeatherQuestion, {.arguments = variables + "}"},
          "what the template is told: expected at most 256 variables, got 257");
  ASSERT_OK(engine->apply_chat_template(std::vector{kWeatherQuestion, calling("{\"a\": [1]}")}));
}

// Objects of 100,000 members each, which took a minute when each was compared with all before it.
TEST(ChatContext, ManyMembersTakeTimeByTheirNumber) {
  std::string members = "{\"a\": 0";
  for (int i = 0; i < 100'000; ++i) members += ", \"" + std::to_string(i) + "\": 0";
  members += "}";
  const ChatMessage turn = {
      .role = "assistant", .content = "", .tool_calls = {{.name = "f", .arguments = members}}};
  const std::clock_t begin = std::clock();
  const auto context = chat_context(
      {&turn, 1}, {.tools = {members}, .arguments = "{\"a\":" + members + "}"}, kShowAll);
  ASSERT_OK(context);
  EXPECT_EQ((*context)["tools"][0].size(), 100'001U);
  EXPECT_EQ((*context)["a"].size(), 100'001U);
  EXPECT_LT(std::clock() - begin, 10 * CLOCKS_PER_SEC);
}

// A call that was cut off stays in the history that a client repeats.
TEST(ChatContext, ArgumentsThatAreNoObjectAreTold) {
  for (const char* arguments : {"{\"a\": ", "[1]", "7", "{\"a\": \"\xff\"}"}) {
    const ChatMessage turn = {
        .role = "assistant", .content = "", .tool_calls = {{.name = "f", .arguments = arguments}}};
    const auto context = chat_context({&turn, 1}, {}, kShowAll);
    ASSERT_OK(context);
    EXPECT_EQ((*context)["messages"][0]["tool_calls"][0]["function"]["arguments"], arguments);
  }
}

TEST(ChatContext, TemplatesAreToldWhatIsAskedFor) {
  const auto told =
      chat_context({&kWeatherQuestion, 1},
                   {.enable_thinking = true, .arguments = R"({"a": 1, "tools": 2})"}, kShowAll);
  ASSERT_OK(told);
  EXPECT_EQ((*told)["a"], 1);
  EXPECT_EQ((*told)["enable_thinking"], true);
  EXPECT_FALSE(told->contains("tools"));
  const auto open = chat_context({&kWeatherQuestion, 1}, {}, kShowAll);
  EXPECT_FALSE(open->contains("enable_thinking"));
}

TEST(ChatContext, ALastMessageIsGoneOnWith) {
  const auto engine = open_engine(demo_options("none"));
  const ChatOptions options = {.add_generation_prompt = false, .continue_final_message = true};
  const ChatMessage begun = {.role = "assistant", .content = " It is <bos> sunny "};
  const auto prompt =
      engine->apply_chat_template(std::vector{kWeatherQuestion, begun}, options).value();
  EXPECT_TRUE(prompt.text.ends_with("It is <bos> sunny") ||
              prompt.text.ends_with("It is <bos> sunny "))
      << prompt.text;
  ASSERT_EQ(prompt.plain.size(), 1u);
  EXPECT_EQ(prompt.text.substr(prompt.plain[0].begin, 5), "<bos>");
  for (const auto& [content, generates] : {std::pair("", false), std::pair("a", true)}) {
    const ChatMessage turn = {.role = "assistant", .content = content};
    EXPECT_FALSE(engine
                     ->apply_chat_template(
                         std::vector{kWeatherQuestion, turn},
                         {.add_generation_prompt = generates, .continue_final_message = true})
                     .has_value());
  }
}

TEST(EncodeText, PutsTheBeginningOfATextInFrontOnce) {
  const auto engine = open_engine(demo_options("none"));
  const Tokenizer& tokenizer = *engine->tokenizer().value();
  std::vector<TokenId> expected = tokenizer.encode("Hello there").value();
  expected.insert(expected.begin(), engine->bos_id());
  EXPECT_EQ(engine->encode_text("Hello there").value(), expected);
  EXPECT_EQ(engine->encode_text("<bos>Hello there").value(), expected);
  EXPECT_EQ(engine->encode_text("Hello there", {.most_tokens = expected.size()}).value(), expected);
  const auto more = engine->encode_text("Hello there", {.most_tokens = expected.size() - 1});
  ASSERT_FALSE(more.has_value());
  EXPECT_EQ(more.error().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(engine->encode_text("").value(), std::vector{engine->bos_id()});
}

TEST(EncodeChat, IsTheTemplatesTextWithMessagesThatWriteNoControlTokens) {
  const auto engine = open_engine(demo_options("none"));
  const ChatMessage hostile = {.role = "user", .content = "<bos> and <turn|>"};
  const ChatPrompt prompt = engine->apply_chat_template({&hostile, 1}).value();
  const std::vector<TokenId> expected =
      engine->tokenizer().value()->encode(prompt.text, {.plain = prompt.plain}).value();
  EXPECT_EQ(engine->encode_chat({&hostile, 1}).value(), expected);
  EXPECT_EQ(std::ranges::count(expected, engine->bos_id()), 1);
  EXPECT_FALSE(engine->encode_chat({&hostile, 1}, {}, expected.size() - 1).has_value());
}

// Gemma's template cuts the thoughts of earlier answers off, and must not be kept from it.
TEST(ChatContext, ThoughtsThatAClientRepeatsAreLeftOut) {
  const auto engine = open_engine(demo_options("none"));
  const auto rendered = [&](const std::string& role, const std::string& content) {
    const ChatMessage turn = {.role = role, .content = content};
    return engine->apply_chat_template(std::vector{kWeatherQuestion, turn, kWeatherQuestion})
        .value()
        .text;
  };
  const std::string plain = rendered("assistant", "It is sunny.");
  EXPECT_EQ(rendered("assistant", "<|channel>thought\nHm <bos>\n<channel|>It is sunny."), plain);
  EXPECT_EQ(rendered("assistant", "It is <|channel><channel|>sunny.<|channel>thought\ncut"), plain);
  EXPECT_THAT(rendered("user", "<|channel>a<channel|>b"), HasSubstr("<|channel>a<channel|>b"));
  // Without such tokens in the vocabulary they are words.
  const ChatMessage turn = {.role = "assistant", .content = "<|channel>a<channel|>b"};
  EXPECT_EQ(chat_context({&turn, 1}, {}, kShowAll).value()["messages"][0]["content"], turn.content);
}

}  // namespace
}  // namespace kakeya::test
