// Thoughts that Qwen3 writes, as clients of every dialect see them, whole and in events.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "service/grammar/grammar_engine.h"
#include "service/thinking_model.h"
#include "wire/http/http_client.h"
#include "wire/http/scripted_scheduler.h"
#include "wire/http/test_server.h"

namespace kakeya::wire {
namespace {

using nlohmann::json;
using test::HttpClient;
using Texts = std::pair<std::string, std::string>;

class ThoughtsOverHttp : public testing::Test {
 protected:
  // With a scripted answer, if there is one.
  void start(const std::string& chat_template, const std::string& answer) {
    server_.reset();
    engine_ = test::open_thinking_engine(chat_template);
    std::unique_ptr<Scheduler> scheduler;
    if (!answer.empty()) {
      scheduler = std::make_unique<test::ScriptedScheduler>(
          engine_->tokenizer().value()->encode(answer).value());
    }
    server_ = std::make_unique<test::TestServer>(*engine_, service::ServiceOptions(), HttpOptions(),
                                                 std::move(scheduler));
  }

  std::string post(const std::string& path, const json& more = json::object()) {
    json body = {{"max_tokens", 100}, {"messages", {{{"role", "user"}, {"content", "a"}}}}};
    if (path == "/v1/responses") body = {{"input", "a"}};
    if (path == "/api/chat") body.erase("max_tokens");
    body.update(more);
    HttpClient client(server_->port());
    client.send({}, test::http::verb::post, path, body.dump());
    const auto response = client.receive();
    EXPECT_EQ(response.result_int(), 200u) << response.body();
    return response.body();
  }

  // Thought and answer of a chat.
  Texts chat(const json& more = json::object()) {
    const json message = json::parse(post("/v1/chat/completions", more))["choices"][0]["message"];
    return {message.value("reasoning_content", ""), message.value("content", "")};
  }
  Texts streamed_chat(json more = json::object()) {
    more["stream"] = true;
    Texts texts;
    for (const std::string& event : test::event_texts(post("/v1/chat/completions", more))) {
      if (event == "[DONE]") continue;
      const json delta = json::parse(event)["choices"][0]["delta"];
      // A thought that comes behind words would be none.
      if (delta.contains("reasoning_content")) {
        EXPECT_EQ(texts.second, "");
      }
      texts.first += delta.value("reasoning_content", "");
      texts.second += delta.value("content", "");
    }
    return texts;
  }

  std::shared_ptr<Engine> engine_;
  std::unique_ptr<test::TestServer> server_;
};

TEST_F(ThoughtsOverHttp, ComeApartFromTheAnswerInChats) {
  const std::string rest = "So it is.\n</think>\n\nAn answer.<|im_end|>";
  const Texts expected("So it is.", "An answer.");
  start("Qwen-Qwen3-0.6B.jinja", "<think>\n" + rest);
  EXPECT_EQ(chat(), expected);
  EXPECT_EQ(streamed_chat(), expected);
  // One that the prompt has opened; none where it was told not to think.
  start("Qwen3.5-4B.jinja", rest);
  EXPECT_EQ(chat(), expected);
  EXPECT_EQ(streamed_chat(), expected);
  start("Qwen3.5-4B.jinja", "An answer.<|im_end|>");
  EXPECT_EQ(chat({{"enable_thinking", false}}), Texts("", "An answer."));
  EXPECT_EQ(streamed_chat({{"enable_thinking", false}}), Texts("", "An answer."));
}

TEST_F(ThoughtsOverHttp, AreBlocksAndItemsOfTheirOwn) {
  start("Qwen-Qwen3-0.6B.jinja", "<think>\nSo it is.\n</think>\n\nAn answer.<|im_end|>");
  const json blocks = json::parse(post("/v1/messages"))["content"];
  ASSERT_EQ(blocks.size(), 2u) << blocks;
  EXPECT_EQ(blocks[0]["thinking"], "So it is.");
  EXPECT_EQ(blocks[1]["text"], "An answer.");
  Texts deltas;
  const std::string events =
      std::regex_replace(post("/v1/messages", {{"stream", true}}), std::regex("event: .*\n"), "");
  for (const std::string& event : test::event_texts(events)) {
    const json delta = json::parse(event).value("delta", json::object());
    deltas.first += delta.value("thinking", "");
    deltas.second += delta.value("text", "");
  }
  EXPECT_EQ(deltas, Texts("So it is.", "An answer."));

  const json items = json::parse(post("/v1/responses"))["output"];
  ASSERT_EQ(items.size(), 2u) << items;
  EXPECT_EQ(items[0]["type"], "reasoning");
  EXPECT_EQ(items[0]["content"][0]["text"], "So it is.");
  EXPECT_EQ(items[1]["content"][0]["text"], "An answer.");

  const json message = json::parse(post("/api/chat", {{"stream", false}}))["message"];
  EXPECT_EQ(message["thinking"], "So it is.");
  EXPECT_EQ(message["content"], "An answer.");
}

TEST_F(ThoughtsOverHttp, AreCounted) {
  const std::string thought = "<think>\nSo it is.\n</think>";
  start("Qwen-Qwen3-0.6B.jinja", thought + "\n\nAn answer.<|im_end|>");
  const auto tokens = engine_->tokenizer().value()->encode(thought).value().size();
  const json chat = json::parse(post("/v1/chat/completions"))["usage"];
  EXPECT_EQ(chat["completion_tokens_details"]["reasoning_tokens"], tokens);
  const json response = json::parse(post("/v1/responses"))["usage"];
  EXPECT_EQ(response["output_tokens_details"]["reasoning_tokens"], tokens);
  EXPECT_GT(response["output_tokens"], tokens);
  start("Qwen3.5-4B.jinja", "An answer.<|im_end|>");
  const json none = json::parse(post("/v1/chat/completions", {{"enable_thinking", false}}));
  EXPECT_EQ(none["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
}

TEST_F(ThoughtsOverHttp, HideNoCallOfATool) {
  start("Qwen-Qwen3-0.6B.jinja",
        "<think>\nI could <tool_call> now.\n</think>\n\n<tool_call>\n{\"name\": \"now\", "
        "\"arguments\": {}}\n</tool_call><|im_end|>");
  const json tools = json::parse(R"([{"type":"function","function":{"name":"now"}}])");
  const json message =
      json::parse(post("/v1/chat/completions", {{"tools", tools}}))["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "I could <tool_call> now.");
  ASSERT_EQ(message["tool_calls"].size(), 1u) << message;
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "now");
  EXPECT_TRUE(message["content"].is_null()) << message;
}

// The model's own tokens: biases make it end its thought somewhere.
TEST_F(ThoughtsOverHttp, AFormBeginsBehindThem) {
  if (!service::has_grammars()) GTEST_SKIP() << "built without xgrammar";
  start("Qwen3.5-4B.jinja", "");
  const TokenId end = engine_->tokenizer().value()->token_id("</think>").value();
  // The strongest bias that lets it think at all.
  json wish = {{"regex", "[0-9]{3}"}, {"temperature", 0}, {"frequency_penalty", 2}};
  Texts whole;
  for (int bias = 12; bias > 0 && whole.first.empty(); --bias) {
    wish["logit_bias"] = {{std::to_string(end), bias}};
    whole = chat(wish);
  }
  const auto& [thought, said] = whole;
  EXPECT_FALSE(thought.empty());
  EXPECT_TRUE(std::regex_match(said, std::regex("[0-9]{3}"))) << said;
  EXPECT_EQ(streamed_chat(wish), whole);
}

// The model, left alone, thinks for ever.
TEST_F(ThoughtsOverHttp, EndWhereTheirBudgetDoes) {
  start("Qwen3.5-4B.jinja", "");
  const auto thought_tokens = [this](const json& more) -> int {
    json wish = {{"temperature", 0}, {"max_tokens", 40}};
    wish.update(more);
    return json::parse(post("/v1/chat/completions",
                            wish))["usage"]["completion_tokens_details"]["reasoning_tokens"];
  };
  ASSERT_EQ(thought_tokens(json::object()), 40);
  for (const char* const name : {"thinking_budget", "thinking_budget_tokens",
                                 "thinking_token_budget", "max_thinking_tokens"}) {
    EXPECT_EQ(thought_tokens({{name, 7}}), 8) << name;  // and the marker
    EXPECT_EQ(thought_tokens({{name, 0}}), 1) << name;
    EXPECT_EQ(thought_tokens({{name, -1}}), 40) << name;
  }
  EXPECT_EQ(thought_tokens({{"thinking_budget", 7}, {"min_tokens", 20}}), 8);
  EXPECT_EQ(streamed_chat({{"thinking_budget", 7}, {"temperature", 0}, {"max_tokens", 40}}),
            chat({{"thinking_budget", 7}, {"temperature", 0}, {"max_tokens", 40}}));
  // Greedy, all of them: chance would end a thought before its budget does.
  const json response = json::parse(post(
      "/v1/responses", {{"thinking_budget", 7}, {"temperature", 0}, {"max_output_tokens", 20}}));
  EXPECT_EQ(response["usage"]["output_tokens_details"]["reasoning_tokens"], 8) << response;
  const json thinking = {{"type", "enabled"}, {"budget_tokens", 7}};
  const json blocks = json::parse(post(
      "/v1/messages", {{"thinking", thinking}, {"temperature", 0}, {"max_tokens", 20}}))["content"];
  ASSERT_EQ(blocks.size(), 2u) << blocks;
  EXPECT_EQ(blocks[1]["type"], "text");
  if (!service::has_grammars()) return;
  const auto [thought, said] =
      chat({{"thinking_budget", 7}, {"regex", "[0-9]{3}"}, {"temperature", 0}});
  EXPECT_FALSE(thought.empty());
  EXPECT_TRUE(std::regex_match(said, std::regex("[0-9]{3}"))) << said;
}

}  // namespace
}  // namespace kakeya::wire
