// A tool loop as agents run it: a call, its result, an answer. Over each wire, streamed and not,
// the model sees the same conversation, and clients the same call and the same answer.
#include <gmock/gmock.h>

#include <algorithm>
#include <regex>
#include <sstream>

#include "runtime/demo_sessions.h"
#include "wire/http/http_client.h"
#include "wire/http/scripted_scheduler.h"
#include "wire/http/test_server.h"
#include "wire/openai/responses_events.h"

namespace kakeya::wire {
namespace {

using nlohmann::json;

constexpr const char* kCall =
    "<|tool_call>call:weather{days:2,place:<|\"|>Bern<|\"|>}<tool_call|><turn|>";
constexpr const char* kAnswer = "It rains in Bern.";

json schema() {
  return json::parse(
      R"({"type":"object","properties":{"days":{"type":"integer"},"place":{"type":"string"}}})");
}

// The call, and the answer behind its result.
struct Loop {
  std::string name;
  json arguments;
  std::string answer;

  bool operator==(const Loop&) const = default;
};

class ToolLoopsOverHttp : public testing::Test {
 protected:
  void SetUp() override {
    const Tokenizer& tokenizer = *engine_->tokenizer().value();
    const TokenId response = tokenizer.token_id("<|tool_response>").value();
    const auto call = tokenizer.encode(kCall).value();
    const auto answer = tokenizer.encode(std::string(kAnswer) + "<turn|>").value();
    auto scheduler =
        std::make_unique<test::ScriptedScheduler>([=](const std::vector<TokenId>& prompt) {
          return std::ranges::find(prompt, response) == prompt.end() ? call : answer;
        });
    script_ = scheduler.get();
    server_ = std::make_unique<test::TestServer>(*engine_, service::ServiceOptions(), HttpOptions(),
                                                 std::move(scheduler));
  }

  std::string post(const std::string& path, const json& body) {
    test::HttpClient client(server_->port());
    client.send({}, test::http::verb::post, path, body.dump());
    const auto response = client.receive();
    EXPECT_EQ(response.result_int(), 200u) << response.body();
    return response.body();
  }

  // The message of a chat.
  json chat(const json& messages, bool stream) {
    const json function = {{"name", "weather"}, {"parameters", schema()}};
    const json body = {{"messages", messages},
                       {"tools", json::array({{{"type", "function"}, {"function", function}}})},
                       {"stream", stream}};
    const std::string text = post("/v1/chat/completions", body);
    if (!stream) return json::parse(text)["choices"][0]["message"];
    json message = {{"role", "assistant"}, {"content", ""}};
    for (const std::string& event : test::event_texts(text)) {
      if (event == "[DONE]") continue;
      const json delta = json::parse(event)["choices"][0]["delta"];
      if (delta.contains("content") && delta["content"].is_string()) {
        message["content"] =
            message["content"].get<std::string>() + delta["content"].get<std::string>();
      }
      for (const json& call : delta.value("tool_calls", json::array())) {
        if (call.contains("id")) {
          message["tool_calls"].push_back(call);
        } else {
          json& arguments = message["tool_calls"][0]["function"]["arguments"];
          arguments =
              arguments.get<std::string>() + call["function"]["arguments"].get<std::string>();
        }
      }
    }
    return message;
  }

  Loop loop_of_chats(bool stream) {
    json messages = json::array({{{"role", "user"}, {"content", "Weather?"}}});
    const json called = chat(messages, stream);
    const json& call = called["tool_calls"][0];
    messages.push_back(called);
    messages.push_back({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "rain"}});
    return {call["function"]["name"], json::parse(call["function"]["arguments"].get<std::string>()),
            chat(messages, stream)["content"]};
  }

  json response(json fields, bool stream) {
    const json tool = {{"type", "function"}, {"name", "weather"}, {"parameters", schema()}};
    fields.update({{"tools", json::array({tool})}, {"stream", stream}});
    const std::string text = post("/v1/responses", fields);
    return stream ? test::added_up(test::response_events(text)) : json::parse(text);
  }

  // The second request names the response before, or repeats its items.
  Loop loop_of_responses(bool stream, bool by_id) {
    const json first = response({{"input", "Weather?"}}, stream);
    const json& call = first["output"][0];
    const json result = {
        {"type", "function_call_output"}, {"call_id", call["call_id"]}, {"output", "rain"}};
    const json asked = {{"role", "user"}, {"content", "Weather?"}};
    const json second =
        by_id ? response({{"previous_response_id", first["id"]}, {"input", json::array({result})}},
                         stream)
              : response({{"input", json::array({asked, call, result})}}, stream);
    return {call["name"], json::parse(call["arguments"].get<std::string>()),
            second["output"][0]["content"][0]["text"]};
  }

  // The content blocks of a message.
  json message(const json& messages, bool stream) {
    const json tool = {{"name", "weather"}, {"input_schema", schema()}};
    const std::string text = post("/v1/messages", {{"messages", messages},
                                                   {"max_tokens", 100},
                                                   {"tools", json::array({tool})},
                                                   {"stream", stream}});
    if (!stream) return json::parse(text)["content"];
    json blocks = json::array();
    std::string input;
    for (const std::string& line :
         test::event_texts(std::regex_replace(text, std::regex("event: .*\n"), ""))) {
      const json event = json::parse(line);
      if (event["type"] == "content_block_start") blocks.push_back(event["content_block"]);
      if (event["type"] != "content_block_delta") continue;
      const json& delta = event["delta"];
      if (delta["type"] == "input_json_delta") {
        input += delta["partial_json"].get<std::string>();
      } else {
        blocks.back()["text"] =
            blocks.back()["text"].get<std::string>() + delta["text"].get<std::string>();
      }
    }
    if (!input.empty()) blocks.back()["input"] = json::parse(input);
    return blocks;
  }

  Loop loop_of_messages(bool stream) {
    json messages = json::array({{{"role", "user"}, {"content", "Weather?"}}});
    const json called = message(messages, stream);
    const json& call = called[0];
    messages.push_back({{"role", "assistant"}, {"content", called}});
    const json result = {{"type", "tool_result"}, {"tool_use_id", call["id"]}, {"content", "rain"}};
    messages.push_back({{"role", "user"}, {"content", json::array({result})}});
    return {call["name"], call["input"], message(messages, stream)[0]["text"]};
  }

  // The message of Ollama's API.
  json ollama(const json& messages, bool stream) {
    const json function = {{"name", "weather"}, {"parameters", schema()}};
    const std::string text =
        post("/api/chat", {{"messages", messages},
                           {"tools", json::array({{{"type", "function"}, {"function", function}}})},
                           {"stream", stream}});
    if (!stream) return json::parse(text)["message"];
    json message = {{"role", "assistant"}, {"content", ""}};
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const json said = json::parse(line)["message"];
      message["content"] =
          message["content"].get<std::string>() + said["content"].get<std::string>();
      if (said.contains("tool_calls")) message["tool_calls"] = said["tool_calls"];
    }
    return message;
  }

  Loop loop_of_ollama(bool stream) {
    json messages = json::array({{{"role", "user"}, {"content", "Weather?"}}});
    const json called = ollama(messages, stream);
    messages.push_back(called);
    messages.push_back({{"role", "tool"}, {"tool_name", "weather"}, {"content", "rain"}});
    const json& function = called["tool_calls"][0]["function"];
    return {function["name"], function["arguments"], ollama(messages, stream)["content"]};
  }

  std::shared_ptr<Engine> engine_ = test::open_engine(test::demo_options("none"));
  test::ScriptedScheduler* script_ = nullptr;
  std::unique_ptr<test::TestServer> server_;
};

TEST_F(ToolLoopsOverHttp, AreTheSameOverAllWires) {
  std::vector<Loop> loops;
  for (const bool stream : {false, true}) {
    loops.push_back(loop_of_chats(stream));
    loops.push_back(loop_of_responses(stream, true));
    loops.push_back(loop_of_responses(stream, false));
    loops.push_back(loop_of_messages(stream));
    loops.push_back(loop_of_ollama(stream));
  }
  const Loop expected = {"weather", {{"days", 2}, {"place", "Bern"}}, kAnswer};
  for (const Loop& loop : loops) EXPECT_EQ(loop, expected) << loop.name << loop.arguments;
  const auto prompts = script_->prompts();
  ASSERT_EQ(prompts.size(), 2 * loops.size());
  for (std::size_t i = 2; i < prompts.size(); ++i) {
    EXPECT_EQ(prompts[i], prompts[i % 2]) << "request " << i;
  }
}

}  // namespace
}  // namespace kakeya::wire
