// Calls of tools as clients of both dialects see them, whole and in events: a scripted answer.
#include <gmock/gmock.h>

#include <regex>

#include "runtime/demo_sessions.h"
#include "wire/anthropic/messages_write.h"
#include "wire/http/http_client.h"
#include "wire/http/scripted_scheduler.h"
#include "wire/http/test_server.h"
#include "wire/openai/completion_write.h"

namespace kakeya::wire {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using test::HttpClient;

// Ids differ from call to call.
std::string without_ids(const std::string& text) {
  return std::regex_replace(text, std::regex("(call_|toolu_)[0-9a-f]{32}"), "$1ID");
}

constexpr const char* kTwoCalls =
    "Let me see.<|tool_call>call:weather{place:<|\"|>Bern \"old\"<|\"|>,days:2}<tool_call|>"
    "<|tool_call>call:now{}<tool_call|><turn|>";
constexpr const char* kSchema =
    R"({"type":"object","properties":{"place":{"type":"string"},"days":{"type":"integer"}}})";

class ToolCallsOverHttp : public testing::Test {
 protected:
  void start(const std::string& answer) {
    const auto ids = engine_->tokenizer().value()->encode(answer).value();
    server_.reset();
    server_ = std::make_unique<test::TestServer>(*engine_, service::ServiceOptions(), HttpOptions(),
                                                 std::make_unique<test::ScriptedScheduler>(ids));
  }

  std::string post(const std::string& path, const json& body, unsigned status = 200) {
    HttpClient client(server_->port());
    client.send({}, test::http::verb::post, path, body.dump());
    const auto response = client.receive();
    EXPECT_EQ(response.result_int(), status) << response.body();
    return response.body();
  }

  static json chat(const json& more = json::object()) {
    const json function = {{"name", "weather"}, {"parameters", json::parse(kSchema)}};
    json body = {{"messages", json::array({{{"role", "user"}, {"content", "a"}}})},
                 {"tools", json::array({{{"type", "function"}, {"function", function}}})}};
    body.update(more);
    return body;
  }
  static json message(const json& more = json::object()) {
    const json tool = {{"name", "weather"}, {"input_schema", json::parse(kSchema)}};
    json body = {{"messages", json::array({{{"role", "user"}, {"content", "a"}}})},
                 {"max_tokens", 100},
                 {"tools", json::array({tool})}};
    body.update(more);
    return body;
  }

  // The message that a stream's deltas add up to, and why it ended.
  static std::pair<json, std::string> added_up(const std::string& events) {
    json message = {{"role", "assistant"}, {"content", nullptr}};
    std::string reason;
    for (const std::string& event : test::event_texts(events)) {
      if (event == "[DONE]") continue;
      const json choice = json::parse(event)["choices"][0];
      const json& delta = choice["delta"];
      if (const std::string text = delta.value("content", ""); !text.empty()) {
        message["content"] =
            (message["content"].is_null() ? "" : message["content"].get<std::string>()) + text;
      }
      for (const json& call : delta.value("tool_calls", json::array())) {
        json& calls = message["tool_calls"];
        if (call.contains("id")) {
          EXPECT_EQ(call["index"], calls.size());
          calls.push_back(
              {{"id", call["id"]}, {"type", call["type"]}, {"function", call["function"]}});
        } else {
          json& arguments = calls.at(call["index"].get<std::size_t>())["function"]["arguments"];
          arguments =
              arguments.get<std::string>() + call["function"]["arguments"].get<std::string>();
        }
      }
      if (choice["finish_reason"].is_string()) reason = choice["finish_reason"];
    }
    return {message, reason};
  }

  // The content blocks that a stream of messages adds up to.
  static json blocks_of(const std::string& events) {
    json blocks = json::array();
    std::string input;
    for (const std::string& line :
         test::event_texts(std::regex_replace(events, std::regex("event: .*\n"), ""))) {
      const json event = json::parse(line);
      if (event["type"] == "content_block_start") {
        EXPECT_EQ(event["index"], blocks.size());
        blocks.push_back(event["content_block"]);
        input.clear();
      } else if (event["type"] == "content_block_delta") {
        const json& delta = event["delta"];
        if (delta["type"] == "input_json_delta") input += delta["partial_json"].get<std::string>();
        if (delta["type"] == "text_delta") {
          blocks.back()["text"] =
              blocks.back()["text"].get<std::string>() + delta["text"].get<std::string>();
        }
      } else if (event["type"] == "content_block_stop" && blocks.back()["type"] == "tool_use") {
        blocks.back()["input"] = json::parse(input);
      }
    }
    return blocks;
  }

  std::shared_ptr<Engine> engine_ = test::open_engine(test::demo_options("none"));
  std::unique_ptr<test::TestServer> server_;
};

TEST_F(ToolCallsOverHttp, AreMembersOfAChatsMessage) {
  start(kTwoCalls);
  ASSERT_EQ(server_->service().planner().tool_format(), service::ToolFormat::kGemma);
  const std::string whole = without_ids(post("/v1/chat/completions", chat()));
  const json choice = json::parse(whole)["choices"][0];
  EXPECT_EQ(choice["message"],
            json::parse(R"({"role":"assistant","content":"Let me see.","tool_calls":[
    {"id":"call_ID","type":"function","function":{"name":"weather","arguments":"{\"place\":\"Bern \\\"old\\\"\",\"days\":2}"}},
    {"id":"call_ID","type":"function","function":{"name":"now","arguments":"{}"}}]})"));
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  const auto [message, reason] =
      added_up(without_ids(post("/v1/chat/completions", chat({{"stream", true}}))));
  EXPECT_EQ(message, choice["message"]);
  EXPECT_EQ(reason, "tool_calls");
}

TEST_F(ToolCallsOverHttp, AreBlocksOfAMessage) {
  start(kTwoCalls);
  const json whole = json::parse(without_ids(post("/v1/messages", message())));
  EXPECT_EQ(whole["content"], json::parse(R"([{"type":"text","text":"Let me see."},
    {"type":"tool_use","id":"toolu_ID","name":"weather","input":{"place":"Bern \"old\"","days":2}},
    {"type":"tool_use","id":"toolu_ID","name":"now","input":{}}])"));
  EXPECT_EQ(whole["stop_reason"], "tool_use");
  const std::string events = without_ids(post("/v1/messages", message({{"stream", true}})));
  EXPECT_EQ(blocks_of(events), whole["content"]);
  EXPECT_NE(events.find(R"("stop_reason":"tool_use")"), std::string::npos);
}

TEST_F(ToolCallsOverHttp, EndTheAnswerWhereOneIsWanted) {
  start(kTwoCalls);
  const json one =
      json::parse(post("/v1/chat/completions", chat({{"parallel_tool_calls", false}})));
  EXPECT_EQ(one["choices"][0]["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(one["choices"][0]["finish_reason"], "tool_calls");
  const json choice = {{"type", "auto"}, {"disable_parallel_tool_use", true}};
  EXPECT_EQ(json::parse(post("/v1/messages", message({{"tool_choice", choice}})))["content"].size(),
            2u);
}

TEST_F(ToolCallsOverHttp, AreTextWhereNoToolIsShown) {
  start("<|tool_call>call:f{}<tool_call|><turn|>");
  for (const json& body : {chat({{"tools", nullptr}}), chat({{"tool_choice", "none"}})}) {
    const json choice = json::parse(post("/v1/chat/completions", body))["choices"][0];
    EXPECT_EQ(choice["message"]["content"], "<|tool_call>call:f{}<tool_call|>");
    EXPECT_FALSE(choice["message"].contains("tool_calls"));
    EXPECT_EQ(choice["finish_reason"], "stop");
  }
  const json called = json::parse(post("/v1/chat/completions", chat()))["choices"][0];
  EXPECT_EQ(called["message"]["content"], nullptr);
}

// The arguments of the only call of a chat's message, which must be to `weather`.
json arguments_of(const json& choice) {
  EXPECT_EQ(choice["finish_reason"], "tool_calls") << choice;
  const json& calls = choice["message"]["tool_calls"];
  if (calls.size() != 1 || calls[0]["function"]["name"] != "weather") {
    ADD_FAILURE() << "expected a call of weather, got " << choice;
    return {};
  }
  return json::parse(calls[0]["function"]["arguments"].get<std::string>());
}

// A model that has never learnt of these tools must call one, with arguments that its schema
// allows: with drafts and without the same.
TEST_F(ToolCallsOverHttp, AreForcedByBothDialects) {
  if (!service::has_grammars()) GTEST_SKIP() << "built without xgrammar";
  const auto engine = test::open_engine(test::demo_options("auto"));
  service::ServiceOptions plain;
  plain.draft_length = 0;
  json last;
  for (const service::ServiceOptions& options : {service::ServiceOptions(), plain}) {
    server_ = std::make_unique<test::TestServer>(*engine, options);
    json tools = json::parse(R"([{"type":"function","function":{"name":"weather","strict":true,
        "parameters":{"type":"object","required":["place","days"],"properties":{
          "place":{"type":"string","maxLength":9},"days":{"type":"integer","minimum":1,"maximum":9},
          "unit":{"enum":["C","F"]}}}}},{"type":"function","function":{"name":"other"}}])");
    const json chosen = {{"type", "function"}, {"function", {{"name", "weather"}}}};
    const json fields = {
        {"tools", tools},    {"tool_choice", chosen}, {"parallel_tool_calls", false},
        {"max_tokens", 200}, {"temperature", 1.2},    {"seed", 7}};
    const json choice =
        json::parse(without_ids(post("/v1/chat/completions", chat(fields))))["choices"][0];
    const json arguments = arguments_of(choice);
    EXPECT_TRUE(arguments["place"].is_string()) << arguments;
    EXPECT_TRUE(arguments["days"] >= 1 && arguments["days"] <= 9) << arguments;
    EXPECT_TRUE(last.is_null() || last == arguments) << arguments << last;
    last = arguments;
    const json required = {{"tools", json::array({tools[0]})},
                           {"tool_choice", "required"},
                           {"parallel_tool_calls", false},
                           {"max_tokens", 200}};
    arguments_of(json::parse(post("/v1/chat/completions", chat(required)))["choices"][0]);
  }
  const json schema = json::parse(R"({"type":"object","required":["n"],"properties":{
      "n":{"type":"integer","minimum":10,"maximum":99}}})");
  const json tools = json::array({{{"name", "count"}, {"input_schema", schema}}});
  const json choice = {{"type", "any"}, {"disable_parallel_tool_use", true}};
  const json answer =
      json::parse(post("/v1/messages", message({{"tools", tools}, {"tool_choice", choice}})));
  EXPECT_EQ(answer["stop_reason"], "tool_use") << answer;
  EXPECT_EQ(answer["content"][0]["name"], "count");
  EXPECT_TRUE(answer["content"][0]["input"]["n"] >= 10) << answer;
}

TEST_F(ToolCallsOverHttp, AreCallsWhateverTheirSchemaLeavesOut) {
  if (!service::has_grammars()) GTEST_SKIP() << "built without xgrammar";
  server_ = std::make_unique<test::TestServer>(*engine_, service::ServiceOptions());
  const auto with = [](const char* name, const char* parameters) {
    const json function = {{"name", name}, {"parameters", json::parse(parameters)}};
    return chat({{"tools", json::array({{{"type", "function"}, {"function", function}}})},
                 {"tool_choice", "required"},
                 {"parallel_tool_calls", false},
                 {"temperature", 1.5},
                 {"seed", 3}});
  };
  for (const char* const parameters : {R"({"properties":{}})", "{}", R"({"enum":[1,{"a":2}]})"}) {
    const json answer = json::parse(post("/v1/chat/completions", with("weather", parameters)));
    EXPECT_TRUE(arguments_of(answer["choices"][0]).is_object()) << answer;
  }
  const auto refused = [&](const json& body) {
    return json::parse(post("/v1/chat/completions", body, 400))["error"]["param"];
  };
  EXPECT_EQ(refused(with("weather", R"({"type":"string"})")), "tools");
  EXPECT_EQ(refused(with("my tool", "{}")), "tools");
  json twice = with("weather", "{}");
  twice["tools"].push_back(twice["tools"][0]);
  twice["tool_choice"] = "auto";
  EXPECT_EQ(refused(twice), "tools");
}

TEST_F(ToolCallsOverHttp, AreRefusedWhereAStrictSchemaCannotBeEnforced) {
  if (!service::has_grammars()) GTEST_SKIP() << "built without xgrammar";
  start(kTwoCalls);
  json tools = json::parse(R"([{"type":"function","function":{"name":"f","strict":true,
      "parameters":{"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}}}}])");
  const json refused = json::parse(post("/v1/chat/completions", chat({{"tools", tools}}), 400));
  EXPECT_EQ(refused["error"]["param"], "tools");
  EXPECT_THAT(refused["error"]["message"].get<std::string>(),
              testing::HasSubstr("tool 'f': JSON schema: uniqueItems at #/properties/a"));
  tools[0]["function"].erase("strict");
  post("/v1/chat/completions", chat({{"tools", tools}}));
}

TEST_F(ToolCallsOverHttp, ThatAreCutAreNoBlocks) {
  start(kTwoCalls);
  const json cut = json::parse(post("/v1/messages", message({{"max_tokens", 14}})));
  EXPECT_EQ(cut["stop_reason"], "max_tokens");
  ASSERT_EQ(cut["content"].size(), 1u);
  EXPECT_THAT(cut["content"][0]["text"].get<std::string>(),
              testing::StartsWith("Let me see.{\"place"));
  const auto [message, reason] =
      added_up(post("/v1/chat/completions", chat({{"max_tokens", 14}, {"stream", true}})));
  EXPECT_EQ(reason, "length");
  EXPECT_THAT(message["tool_calls"][0]["function"]["arguments"].get<std::string>(),
              testing::StartsWith("{\"place"));
}

TEST_F(ToolCallsOverHttp, GoBackToTheModelWithTheirResults) {
  start(kTwoCalls);
  const char* const conversation = R"([{"role":"user","content":"a"},
    {"role":"assistant","content":[{"type":"text","text":"See."},
      {"type":"tool_use","id":"1","name":"weather","input":{"place":"Bern","days":2}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"rain"},
      {"type":"text","text":"And?"}]}])";
  json counted = message({{"messages", json::parse(conversation)}});
  counted.erase("max_tokens");
  const char* const same = R"([{"role":"user","content":"a"},
    {"role":"assistant","content":"See.","tool_calls":[{"id":"1","type":"function",
      "function":{"name":"weather","arguments":"{\"place\":\"Bern\",\"days\":2}"}}]},
    {"role":"tool","tool_call_id":"1","content":"rain"},{"role":"user","content":"And?"}])";
  const auto tokens = [this](const json& body) {
    return json::parse(post("/tokenize", body))["count"];
  };
  const json expected = tokens(chat({{"messages", json::parse(same)}}));
  EXPECT_EQ(json::parse(post("/v1/messages/count_tokens", counted))["input_tokens"], expected);
  EXPECT_GT(expected, tokens(chat({{"messages", json::parse(same)}, {"tools", nullptr}})));
}

// Pieces as they may come: behind a call's rest a thought, a text and another call.
std::vector<service::AnswerPiece> scripted_pieces() {
  std::vector<service::AnswerPiece> pieces(3);
  pieces[0].text = "a";
  pieces[0].tool_calls = {{.index = 0, .id = "x", .name = "f", .arguments = "{", .at = 1}};
  pieces[1].tool_calls = {{.index = 0, .arguments = "\"k\":1"}};
  pieces[2].reasoning = "hm";
  pieces[2].text = "cd";
  pieces[2].tool_calls = {{.index = 0, .arguments = "}"},
                          {.index = 1, .id = "y", .name = "g", .arguments = "{}", .at = 1}};
  return pieces;
}

TEST(ToolCallEvents, OfMessagesAreInTheOrderOfTheBlocks) {
  const std::vector<std::string> none;
  anthropic::MessagesWriter writer("msg-1", "m", 7, none);
  std::vector<std::string> seen;
  service::WholeAnswer whole;
  for (const service::AnswerPiece& piece : scripted_pieces()) {
    append(whole.piece, piece);
    const std::string events =
        std::regex_replace(writer.piece(0, piece), std::regex("event: .*\n"), "");
    for (const std::string& text : test::event_texts(events)) {
      const json event = json::parse(text);
      std::string line = event["type"].get<std::string>().substr(14) + ' ' + event["index"].dump();
      const json said = event.value("delta", event.value("content_block", json::object()));
      for (const char* const name : {"name", "text", "thinking", "partial_json"}) {
        if (said.value(name, "") != "") line += ' ' + said.value(name, "");
      }
      seen.push_back(line);
    }
  }
  EXPECT_THAT(
      seen, testing::ElementsAre("start 0", "delta 0 a", "stop 0", "start 1 f", "delta 1 {",
                                 "delta 1 \"k\":1", "delta 1 }", "stop 1", "start 2", "delta 2 hm",
                                 "stop 2", "start 3", "delta 3 c", "stop 3", "start 4 g",
                                 "delta 4 {}", "stop 4", "start 5", "delta 5 d"));
  EXPECT_EQ(json::parse(writer.whole({whole}, {}))["content"], json::parse(R"([
    {"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"a"},
    {"type":"tool_use","id":"toolu_x","name":"f","input":{"k":1}},{"type":"text","text":"c"},
    {"type":"tool_use","id":"toolu_y","name":"g","input":{}},{"type":"text","text":"d"}])"));
}

TEST(ToolCallEvents, OfChatsHaveOneTranscript) {
  const auto tokenizer = Tokenizer::load(KAKEYA_DEMO_MODEL "/tokenizer.json").value();
  const service::AnswerRequest request;
  openai::CompletionWriter writer(tokenizer, request, "chatcmpl-1", "m", 1);
  std::string deltas;
  for (const service::AnswerPiece& piece : scripted_pieces()) {
    for (const std::string& text : test::event_texts(writer.piece(0, piece))) {
      deltas += ordered_json::parse(text)["choices"][0]["delta"].dump() + '\n';
    }
  }
  EXPECT_EQ(
      deltas,
      R"({"content":"a","tool_calls":[{"index":0,"id":"call_x","type":"function","function":{"name":"f","arguments":"{"}}]})"
      "\n"
      R"({"tool_calls":[{"index":0,"function":{"arguments":"\"k\":1"}}]})"
      "\n"
      R"({"reasoning_content":"hm","content":"cd","tool_calls":[{"index":0,"function":{"arguments":"}"}},{"index":1,"id":"call_y","type":"function","function":{"name":"g","arguments":"{}"}}]})"
      "\n");
}

}  // namespace
}  // namespace kakeya::wire
