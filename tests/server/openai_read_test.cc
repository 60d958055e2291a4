// Bodies of requests: what good ones mean, and that bad ones are refused by name.
#include "server/openai_read.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "server/conversation_read.h"
#include "server/openai_write.h"

namespace kakeya::server {
namespace {

constexpr const char* kMessages = R"("model":"m","messages":[{"role":"user","content":"a"}])";

std::string body_with(const std::string& fields) {
  return fmt::format("{{{}{}{}}}", kMessages, fields.empty() ? "" : ",", fields);
}

TEST(OpenaiRead, ReadsEveryField) {
  const auto request = read_chat_request(body_with(
      R"("max_tokens":7,"temperature":0.5,"top_p":0.25,"top_k":3,"min_p":0.125,"seed":-1,)"
      R"("stop":["x","y"],"presence_penalty":1,"frequency_penalty":-1,"logit_bias":{"106":-2.5},)"
      R"("logprobs":true,"top_logprobs":4,"stream":true,"return_token_ids":true,"ignore_eos":true,)"
      R"("return_runs":true,)"
      R"("stream_options":{"include_usage":true},"chat_template_kwargs":{"enable_thinking":true},"n":3,"user":{"is":["ignored"]})"));
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_EQ(request->model, "m");
  EXPECT_EQ(request->max_tokens, 7);
  const SamplingWish& sampling = request->sampling;
  EXPECT_EQ(sampling.temperature, 0.5F);
  EXPECT_EQ(sampling.top_p, 0.25F);
  EXPECT_EQ(sampling.top_k, 3);
  EXPECT_EQ(sampling.min_p, 0.125F);
  EXPECT_EQ(sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(sampling.presence_penalty, 1.0F);
  EXPECT_EQ(sampling.frequency_penalty, -1.0F);
  EXPECT_EQ(sampling.logit_bias, (std::vector<std::pair<TokenId, float>>{{106, -2.5F}}));
  EXPECT_EQ(request->stop_strings, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(request->logprobs);
  EXPECT_EQ(request->top_logprobs, 4);
  EXPECT_TRUE(request->stream);
  EXPECT_TRUE(request->include_usage);
  EXPECT_TRUE(request->chat.enable_thinking);
  EXPECT_TRUE(request->return_token_ids);
  EXPECT_TRUE(request->return_runs);
  EXPECT_TRUE(request->ignore_eos);
  EXPECT_EQ(request->choices, 3);
}

TEST(OpenaiRead, ReadsToolsInTheirOrderAndCalls) {
  const std::string tool = R"({"type":"function","function":{"name":"b","a":1,"description":"c"}})";
  const std::string body = fmt::format(
      R"({{"model":"m","tools":[{}],"messages":[{{"role":"user","content":"q"}},)"
      R"({{"role":"assistant","reasoning_content":"r","tool_calls":[{{"id":"1","type":"function",)"
      R"("function":{{"name":"b","arguments":"{{}}"}}}}]}},)"
      R"({{"role":"tool","tool_call_id":"1","name":"b","content":"d"}}])",
      tool);
  const auto request = read_chat_request(body + "}");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_EQ(request->chat.tools, std::vector<std::string>{tool});
  ASSERT_EQ(request->messages.size(), 3u);
  ASSERT_EQ(request->messages[1].tool_calls.size(), 1u);
  EXPECT_EQ(request->messages[1].tool_calls[0].name, "b");
  EXPECT_EQ(request->messages[1].tool_calls[0].arguments, "{}");
  EXPECT_EQ(request->messages[1].reasoning, "r");
  EXPECT_EQ(request->messages[2].tool_call_id, "1");
  EXPECT_TRUE(read_chat_request(body + R"(,"tool_choice":"none"})")->chat.tools.empty());
  // Reading members in their order takes a search for each.
  std::string many = R"(,"x":[0)";
  for (std::size_t i = 0; i < kMostValuesWithTools; ++i) many += ",0";
  EXPECT_EQ(read_chat_request(body + many + "]}").error().parameter, "tools");
}

TEST(OpenaiRead, ReadsPromptsAsTextAndAsIds) {
  const auto read = [](const std::string& fields) {
    return read_completion_request(R"({"model":"m",)" + fields + "}");
  };
  for (const char* prompt : {R"("a")", R"(["a"])"}) {
    const auto request = read(fmt::format(R"("prompt":{})", prompt));
    ASSERT_TRUE(request.has_value()) << request.error().message;
    EXPECT_EQ(request->prompt->text, "a");
    EXPECT_EQ(request->max_tokens, kDefaultCompletionTokens);
    EXPECT_FALSE(request->logprobs);
  }
  for (const char* prompt : {"[1,2]", "[[1,2]]"}) {
    const auto request = read(fmt::format(R"("prompt":{},"logprobs":0)", prompt));
    ASSERT_TRUE(request.has_value()) << request.error().message;
    EXPECT_EQ(request->prompt->ids, (std::vector<TokenId>{1, 2}));
    EXPECT_TRUE(request->logprobs);
  }
  for (const char* prompt : {"[]", "7", "[[]]", "[-1]", "[1.5]", "[2147483648]", R"(["a","b"])",
                             "[[1],[2]]", "{}", "null"}) {
    const auto request = read(fmt::format(R"("prompt":{})", prompt));
    ASSERT_FALSE(request.has_value()) << prompt;
    EXPECT_EQ(request.error().parameter, "prompt") << prompt;
  }
  EXPECT_EQ(read(R"("prompt":"a","echo":true)").error().parameter, "echo");
  EXPECT_EQ(read(R"("prompt":"a","suffix":"b")").error().parameter, "suffix");
  EXPECT_EQ(read(R"("prompt":"a","best_of":2)").error().parameter, "best_of");
}

TEST(OpenaiRead, ReadsMessagesAsTextAndAsParts) {
  const auto request = read_chat_request(
      R"({"model":"m","messages":[{"role":"developer","content":"be brief"},)"
      R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
      R"({"role":"assistant","content":"c"}],"temperature":null,"max_completion_tokens":5})");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  ASSERT_EQ(request->messages.size(), 3u);
  EXPECT_EQ(request->messages[0].role, "system");
  EXPECT_EQ(request->messages[1].content, "ab");
  EXPECT_EQ(request->messages[2].role, "assistant");
  EXPECT_FALSE(request->sampling.temperature.has_value());
  EXPECT_EQ(request->max_tokens, 5);
  EXPECT_FALSE(request->stream);
}

TEST(OpenaiRead, RefusesWrongTypesAndRangesByName) {
  const std::pair<const char*, const char*> kBad[] = {
      {"max_tokens", "0"},
      {"max_tokens", "1.5"},
      {"max_tokens", "18446744073709551615"},
      {"max_completion_tokens", "\"7\""},
      {"temperature", "\"hot\""},
      {"temperature", "-0.1"},
      {"temperature", "1e300"},
      {"top_p", "[]"},
      {"top_k", "-1"},
      {"min_p", "2"},
      {"seed", "0.5"},
      {"stop", "7"},
      {"stop", "[\"a\",7]"},
      {"presence_penalty", "3"},
      {"frequency_penalty", "true"},
      {"logit_bias", "[1]"},
      {"logit_bias", "{\"x\":1}"},
      {"logit_bias", "{\"1\":\"x\"}"},
      {"logit_bias", "{\"99999999999\":1}"},
      {"logprobs", "1"},
      {"top_logprobs", "21"},
      {"top_logprobs", "3"},
      {"stream", "\"yes\""},
      {"stream_options", "true"},
      {"return_token_ids", "0"},
      {"return_runs", "1"},
      {"ignore_eos", "1"},
      {"n", "17"},
      {"n", "0"},
      {"tools", "7"},
      {"tool_choice", "\"required\",\"tools\":[{}]"},
      {"functions", "[{}]"},
      {"response_format", "{\"type\":\"json_object\"}"},
  };
  for (const auto& [name, value] : kBad) {
    const auto request = read_chat_request(body_with(fmt::format("\"{}\":{}", name, value)));
    ASSERT_FALSE(request.has_value()) << name << " " << value;
    EXPECT_EQ(request.error().status, StatusCode::kInvalidArgument);
    EXPECT_EQ(request.error().parameter, name);
    EXPECT_NE(request.error().message.find("expected"), std::string::npos);
    EXPECT_NE(request.error().message.find("got"), std::string::npos);
  }
}

TEST(OpenaiRead, RefusesWrongMessagesByPlace) {
  const std::pair<const char*, const char*> kBad[] = {
      {"[]", "messages"},
      {"\"hello\"", "messages"},
      {"[7]", "messages[0]"},
      {R"([{"content":"a"}])", "messages[0].role"},
      {R"([{"role":"robot","content":"a"}])", "messages[0].role"},
      {R"([{"role":"user","content":"a"},{"role":"user"}])", "messages[1].content"},
      {R"([{"role":"user","content":{"a":1}}])", "messages[0].content"},
      {R"([{"role":"user","content":[{"type":"image_url"}]}])", "messages[0].content"},
      {R"([{"role":"user","content":["a"]}])", "messages[0].content"},
      {R"([{"role":"assistant","tool_calls":[{}]}])", "messages[0].tool_calls"},
  };
  for (const auto& [messages, where] : kBad) {
    const auto request =
        read_chat_request(fmt::format(R"({{"model":"m","messages":{}}})", messages));
    ASSERT_FALSE(request.has_value()) << messages;
    EXPECT_EQ(request.error().parameter, where) << messages;
  }
}

TEST(OpenaiRead, RefusesWhatIsNoJsonObject) {
  for (const std::string text :
       {"", "{", "[]", "7", "null", "{\"model\":\"\xff\"}", "{\"a\":1e999}", "{\"a\":1}x"}) {
    const auto request = read_chat_request(text);
    ASSERT_FALSE(request.has_value()) << text;
    EXPECT_NE(request.error().message, "");
  }
}

TEST(OpenaiRead, BoundsDepthAndValuesBeforeReading) {
  const auto message_of = [](const std::string& body) {
    const auto request = read_chat_request(body);
    return request ? std::string() : request.error().message;
  };
  const auto nested = [](std::size_t depth) {
    return body_with("\"x\":" + std::string(depth, '[') + std::string(depth, ']'));
  };
  EXPECT_EQ(message_of(nested(kMostJsonDepth - 1)), "");  // in the body's object
  EXPECT_NE(message_of(nested(kMostJsonDepth)).find("levels"), std::string::npos);
  EXPECT_NE(message_of(std::string(8 << 20, '[')).find("levels"), std::string::npos);
  std::string many = "\"x\":[0";
  for (std::size_t count = 0; count < kMostJsonValues; ++count) many += ",0";
  EXPECT_NE(message_of(body_with(many + "]")).find("values"), std::string::npos);
  // Brackets and commas within texts are text.
  EXPECT_EQ(message_of(body_with("\"x\":\"\\\"" + std::string(1 << 20, '[') + "\"")), "");
}

TEST(OpenaiWrite, ErrorsHaveFourFields) {
  EXPECT_EQ(error_json({.message = "a: expected \xff", .parameter = "a"}),
            "{\"error\":{\"message\":\"a: expected \xEF\xBF\xBD\",\"type\":"
            "\"invalid_request_error\",\"param\":\"a\",\"code\":null}}");
}

}  // namespace
}  // namespace kakeya::server
