// Anthropic's Messages API over a loopback: the answers are those of the chat completions, and the
// events of a stream are in the order that its clients expect.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "runtime/demo_sessions.h"
#include "wire/anthropic/messages_read.h"
#include "wire/anthropic/messages_write.h"
#include "wire/http/http_client.h"
#include "wire/http/test_server.h"

namespace kakeya::anthropic {
namespace {

using nlohmann::json;
using test::HttpClient;

struct Event {
  std::string name;
  json data;
};

std::vector<Event> events_of(const std::string& text) {
  std::vector<Event> events;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t line = text.find('\n', at);
    const std::size_t end = text.find("\n\n", at);
    if (text.compare(at, 7, "event: ") == 0) {
      const std::size_t data = line + 1 + std::string_view("data: ").size();
      events.push_back({.name = text.substr(at + 7, line - at - 7),
                        .data = json::parse(text.substr(data, end - data))});
      EXPECT_EQ(events.back().data["type"], events.back().name);
    }
    at = end + 2;
  }
  return events;
}

class Messages : public testing::Test {
 protected:
  json post(const std::string& path, const json& body, unsigned status = 200) {
    HttpClient client(server_.port());
    client.send({}, test::http::verb::post, path, body.dump());
    const auto response = client.receive();
    EXPECT_EQ(response.result_int(), status) << response.body();
    return json::parse(response.body());
  }
  std::string stream(json body) {
    body["stream"] = true;
    HttpClient client(server_.port());
    client.send({}, test::http::verb::post, "/v1/messages", body.dump());
    return client.receive().body();
  }

  static json request(const json& more = json::object()) {
    json body = {
        {"model", "demo"},
        {"max_tokens", 60},
        {"temperature", 0},
        {"messages", json::array({{{"role", "user"}, {"content", "Count from 5 to 12."}}})}};
    body.update(more);
    return body;
  }

  std::shared_ptr<Engine> engine_ = test::open_engine(test::demo_options("none"));
  test::TestServer server_{*engine_, service::ServiceOptions()};
};

TEST_F(Messages, AreThoseOfChatCompletions) {
  const json blocks =
      json::array({{{"type", "text"}, {"text", "Be "}}, {{"type", "text"}, {"text", "brief."}}});
  const json answer = post("/v1/messages", request({{"system", blocks}}));
  json chat = request();
  const json system = {{"role", "system"}, {"content", "Be brief."}};
  chat["messages"].insert(chat["messages"].begin(), system);
  const json expected = post("/v1/chat/completions", chat);
  EXPECT_EQ(
      answer["content"],
      json::array({{{"type", "text"}, {"text", expected["choices"][0]["message"]["content"]}}}));
  EXPECT_EQ(answer["type"], "message");
  EXPECT_EQ(answer["role"], "assistant");
  EXPECT_EQ(answer["model"], "demo");
  EXPECT_EQ(answer["stop_reason"], "end_turn");
  EXPECT_EQ(answer["stop_sequence"], nullptr);
  EXPECT_EQ(answer["usage"]["output_tokens"], expected["usage"]["completion_tokens"]);
  json counted = request({{"system", blocks}});
  counted.erase("max_tokens");
  EXPECT_EQ(post("/v1/messages/count_tokens", counted)["input_tokens"],
            expected["usage"]["prompt_tokens"]);
}

TEST_F(Messages, EndForTheReasonThatIsSaid) {
  const json cut = post("/v1/messages", request({{"max_tokens", 3}}));
  EXPECT_EQ(cut["stop_reason"], "max_tokens");
  const json stopped =
      post("/v1/messages", request({{"stop_sequences", json::array({"none", " 8"})}}));
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], " 8");
  EXPECT_EQ(stopped["content"][0]["text"], "5, 6, 7,");
  // The model goes on with what was put into its mouth.
  json begun = request();
  begun["messages"].push_back({{"role", "assistant"}, {"content", "5, 6, 7,"}});
  EXPECT_EQ(post("/v1/messages", begun)["content"][0]["text"], " 8, 9, 10, 11, 12.");
}

TEST_F(Messages, StreamTheSameInEventsInTheirOrder) {
  const json whole = post("/v1/messages", request());
  const std::vector<Event> events = events_of(stream(request()));
  ASSERT_GE(events.size(), 6u);
  std::string text;
  for (std::size_t i = 2; i + 3 < events.size(); ++i) {
    EXPECT_EQ(events[i].name, "content_block_delta");
    EXPECT_EQ(events[i].data["index"], 0);
    text += events[i].data["delta"]["text"].get<std::string>();
  }
  EXPECT_EQ(text, whole["content"][0]["text"]);
  EXPECT_EQ(events[0].name, "message_start");
  EXPECT_EQ(events[0].data["message"]["usage"]["input_tokens"], whole["usage"]["input_tokens"]);
  EXPECT_EQ(events[1].name, "content_block_start");
  EXPECT_EQ(events[events.size() - 3].name, "content_block_stop");
  const json& last = events[events.size() - 2].data;
  EXPECT_EQ(last["type"], "message_delta");
  EXPECT_EQ(last["delta"]["stop_reason"], "end_turn");
  EXPECT_EQ(last["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
  EXPECT_EQ(events.back().name, "message_stop");
}

TEST(MessagesWriter, ThoughtsAreABlockOfTheirOwn) {
  const std::vector<std::string> none;
  MessagesWriter writer("msg-1", "m", 7, none);
  std::string text = writer.begin(0);
  service::AnswerPiece piece;
  piece.reasoning = "hm";
  text += writer.piece(0, piece);
  piece.reasoning = ".";
  piece.text = "yes";
  text += writer.piece(0, piece);
  text += writer.end(0, {.reason = service::FinishReason::kStop});
  std::vector<std::string> seen;
  for (const Event& event : events_of(text)) {
    const json index = event.data.value("index", json());
    seen.push_back(event.name + (index.is_null() ? "" : " " + index.dump()));
  }
  EXPECT_THAT(seen, testing::ElementsAre("message_start", "content_block_start 0",
                                         "content_block_delta 0", "content_block_delta 0",
                                         "content_block_stop 0", "content_block_start 1",
                                         "content_block_delta 1", "content_block_stop 1"));
}

TEST_F(Messages, RefuseByNameInTheirOwnForm) {
  const auto refused = [&](json body) {
    const json answer = post("/v1/messages", body, 400);
    EXPECT_EQ(answer["type"], "error");
    EXPECT_EQ(answer["error"]["type"], "invalid_request_error");
    const std::string message = answer["error"]["message"];
    return message.substr(0, message.find(':'));
  };
  json without = request();
  without.erase("max_tokens");
  EXPECT_EQ(refused(without), "max_tokens");
  EXPECT_EQ(refused(request({{"tools", json::array({{{"name", "a"}}})}})), "tools[0]");
  // Fields of other APIs, which would change nothing here.
  const std::pair<const char*, json> others[] = {
      {"stop", "a"}, {"response_format", {{"type", "json_object"}}},
      {"seed", 3},   {"guided_regex", "a"},
      {"n", 2},      {"max_completion_tokens", 3}};
  for (const auto& [name, value] : others) EXPECT_EQ(refused(request({{name, value}})), name);
  const json of_the_server = {{"type", "web_search_20250305"}, {"name", "web_search"}};
  EXPECT_EQ(refused(request({{"tools", json::array({of_the_server})}})), "tools[0]");
  const json unknown = {{"type", "tool"}, {"name", "b"}};
  EXPECT_EQ(refused(request({{"tool_choice", unknown}})), "tool_choice.name");
  EXPECT_EQ(refused(request({{"tool_choice", {{"type", "sometimes"}}}})), "tool_choice.type");
  EXPECT_EQ(refused(request({{"thinking", {{"type", "enabled"}}}})), "thinking.budget_tokens");
  EXPECT_EQ(refused(request({{"thinking", {{"type", "sometimes"}}}})), "thinking.type");
  EXPECT_EQ(refused(request({{"output_config", {{"effort", "much"}}}})), "output_config.effort");
  EXPECT_EQ(refused(request({{"output_config", {{"task_budget", 3}}}})),
            "output_config.task_budget");
  EXPECT_EQ(refused(request({{"messages", json::array()}})), "messages");
  const json image = json::array({{{"type", "image"}, {"source", json::object()}}});
  EXPECT_EQ(refused(request({{"messages", json::array({{{"role", "user"}, {"content", image}}})}})),
            "messages[0].content[0]");
  EXPECT_EQ(refused(request({{"messages", json::array({{{"role", "tool"}, {"content", "a"}}})}})),
            "messages[0].role");
  const json other = post("/v1/messages", request({{"model", "other"}}), 404);
  EXPECT_EQ(other["error"]["type"], "not_found_error");
  // The other dialect's errors stay its own.
  EXPECT_EQ(post("/v1/chat/completions", json::object(), 400).count("type"), 0u);
}

TEST(MessagesRead, AsksTheTemplateToThink) {
  const char* const body = R"({"max_tokens":1,"messages":[{"role":"user","content":"a"},
    {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":""},
                                   {"type":"redacted_thinking","data":""},
                                   {"type":"text","text":"b"}]},
    {"role":"user","content":"c"}],"thinking":{"type":"adaptive"},"tools":[],"metadata":{}})";
  const auto request = read_messages_request(body);
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_EQ(request->chat.enable_thinking, true);
  EXPECT_EQ(request->messages[1].reasoning, "t");
  EXPECT_EQ(request->messages[1].content, "b");
  EXPECT_TRUE(request->chat.add_generation_prompt);
}

TEST(MessagesRead, ReadsToolsCallsAndResults) {
  const char* const body = R"({"max_tokens":1,
    "tools":[{"name":"f","description":"d","input_schema":{"b":1,"a":2},"cache_control":{}},
             {"type":"custom","name":"g","input_schema":{}}],
    "tool_choice":{"type":"tool","name":"g","disable_parallel_tool_use":true},
    "messages":[{"role":"user","content":"a"},
      {"role":"assistant","content":[{"type":"text","text":"t"},
        {"type":"tool_use","id":"1","name":"f","input":{"z":1, "y":[2.0]}},
        {"type":"tool_use","id":"2","name":"g","input":{}}]},
      {"role":"user","content":[
        {"type":"tool_result","tool_use_id":"2","content":[{"type":"text","text":"r2"}]},
        {"type":"tool_result","tool_use_id":"1","is_error":true},
        {"type":"text","text":"b"}]}]})";
  const auto request = read_messages_request(body);
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_THAT(
      request->chat.tools,
      testing::ElementsAre(
          R"({"type":"function","function":{"name":"f","description":"d","parameters":{"b":1,"a":2}}})",
          R"({"type":"function","function":{"name":"g","parameters":{}}})"));
  EXPECT_EQ(request->tool_choice, service::ToolChoice::kNamed);
  EXPECT_EQ(request->tool_name, "g");
  EXPECT_FALSE(request->parallel_tool_calls);
  ASSERT_EQ(request->messages.size(), 5u);
  const std::vector<ToolCall>& calls = request->messages[1].tool_calls;
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].arguments, R"({"z":1, "y":[2.0]})");
  EXPECT_EQ(request->messages[2].role, "tool");
  EXPECT_EQ(request->messages[2].tool_call_id, "2");
  EXPECT_EQ(request->messages[2].name, "g");
  EXPECT_EQ(request->messages[2].content, "r2");
  EXPECT_EQ(request->messages[3].tool_call_id, "1");
  EXPECT_EQ(request->messages[4].content, "b");
  EXPECT_TRUE(request->chat.add_generation_prompt);
}

// The messages that a body's own make, one a line.
std::string messages_of(const std::string& messages, const std::string& more = "") {
  const auto request =
      read_messages_request(R"({"max_tokens":1,"messages":[)" + messages + "]" + more + "}");
  if (!request) return request.error().message;
  std::string shown;
  for (const ChatMessage& message : request->messages) {
    shown +=
        message.role + ":" + message.content + (message.tool_calls.empty() ? "" : " calls") + "\n";
  }
  return shown;
}

TEST(MessagesRead, TakesTheSystemsWordsBetweenTheOthers) {
  const auto said = [](const char* role, const char* text) {
    return fmt::format(R"({{"role":"{}","content":"{}"}})", role, text);
  };
  const auto framed = [](const std::string& text) {
    return "<system-reminder>\n" + text + "\n</system-reminder>";
  };
  const std::string user = said("user", "a");
  const std::string system = said("system", "s");
  const std::string call =
      R"({"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]})";
  const std::string result =
      R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"}]})";
  // In front of all others it is the system's message.
  EXPECT_EQ(messages_of(system + "," + user), "system:s\nuser:a\n");
  EXPECT_EQ(messages_of(system + "," + user, R"(,"system":"t")"), "system:t\n\ns\nuser:a\n");
  // Elsewhere it is a user's, beside what the user says.
  EXPECT_EQ(messages_of(user + "," + system), "user:a\n\n" + framed("s") + "\n");
  EXPECT_EQ(messages_of(user + "," + said("assistant", "b") + "," + system + "," + user),
            "user:a\nassistant:b\nuser:" + framed("s") + "\n\na\n");
  EXPECT_EQ(messages_of(user + "," + said("assistant", "b") + "," + system),
            "user:a\nassistant:b\nuser:" + framed("s") + "\n");
  // It does not part results from their calls.
  EXPECT_EQ(messages_of(user + "," + call + "," + system + "," + result),
            "user:a\nassistant: calls\ntool:r\nuser:" + framed("s") + "\n");
  EXPECT_EQ(messages_of(user + "," + call + "," + result + "," + system + "," +
                        said("assistant", "b") + "," + user),
            "user:a\nassistant: calls\ntool:r\nuser:" + framed("s") + "\nassistant:b\nuser:a\n");
  EXPECT_NE(messages_of(user + "," + call + "," + system).find("a tool_result for each tool_use"),
            std::string::npos);
}

TEST(MessagesRead, JoinsResultsThatCameApart) {
  const std::string user = R"({"role":"user","content":"a"})";
  const std::string system = R"({"role":"system","content":"s"})";
  const std::string calls =
      R"({"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}},)"
      R"({"type":"tool_use","id":"2","name":"f","input":{}}]})";
  const auto result = [](const char* id, const std::string& more = "") {
    return fmt::format(R"({{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{0}",)"
                       R"("content":"r{0}"}}{1}]}})",
                       id, more);
  };
  const std::string read = "user:a\nassistant: calls\ntool:r1\ntool:r2\n";
  EXPECT_EQ(messages_of(user + "," + calls + "," + result("1") + "," + result("2")), read);
  EXPECT_EQ(messages_of(user + "," + calls + "," + result("1") + "," +
                        result("2", R"(,{"type":"text","text":"b"})")),
            read + "user:b\n");
  EXPECT_EQ(messages_of(user + "," + calls + "," + system + "," + result("1") + "," + result("2")),
            read + "user:<system-reminder>\ns\n</system-reminder>\n");
  EXPECT_THAT(messages_of(user + "," + calls + "," + result("1") + "," + result("1")),
              testing::StartsWith("messages[3].content[0].tool_use_id: "));
  EXPECT_THAT(messages_of(user + "," + calls + "," + result("1") + "," + user + "," + result("2")),
              testing::StartsWith("messages[4].content[0].tool_use_id: "));
}

// Claude Code begins with a line that differs in each request, and so would every prompt.
TEST(MessagesRead, LeavesOutTheLineThatDiffersEachTime) {
  const std::string user = R"({"role":"user","content":"a"})";
  const std::string line =
      R"({"type":"text","text":"x-anthropic-billing-header: cc_version=2; cch=36ee5;"})";
  const std::string words = R"({"type":"text","text":"s"})";
  EXPECT_EQ(messages_of(user, R"(,"system":[)" + line + "," + words + "]"), "system:s\nuser:a\n");
  EXPECT_EQ(messages_of(user, R"(,"system":[)" + line + "]"), "user:a\n");
  EXPECT_EQ(messages_of(user, R"(,"system":[])"), "system:\nuser:a\n");
  EXPECT_THAT(messages_of(user, R"(,"system":[)" + line + R"(,{"type":"image"}])"),
              testing::StartsWith("system[1]: "));
}

TEST(MessagesRead, ReadsHowMuchIsToBeThought) {
  const auto read = [](const std::string& fields) {
    return read_messages_request(R"({"max_tokens":9,"messages":[{"role":"user","content":"a"}],)" +
                                 fields + "}");
  };
  const auto enabled = read(R"("thinking":{"type":"enabled","budget_tokens":2048})");
  ASSERT_TRUE(enabled) << enabled.error().message;
  EXPECT_EQ(enabled->chat.enable_thinking, true);
  EXPECT_EQ(enabled->thought_budget, 2048);
  EXPECT_FALSE(read(R"("thinking":{"type":"adaptive"})")->thought_budget);
  EXPECT_EQ(read(R"("thinking":{"type":"disabled"})")->chat.enable_thinking, false);
  const auto effort = read(R"("output_config":{"effort":"high"})");
  ASSERT_TRUE(effort) << effort.error().message;
  EXPECT_EQ(effort->chat.arguments, R"({"reasoning_effort":"high"})");
  EXPECT_FALSE(effort->chat.enable_thinking.has_value());
  const auto counted = read_count_request(
      R"({"messages":[{"role":"user","content":"a"}],"output_config":{"effort":"low"},)"
      R"("thinking":{"type":"enabled","budget_tokens":2048}})");
  ASSERT_TRUE(counted) << counted.error().message;
  EXPECT_EQ(counted->chat.arguments, R"({"reasoning_effort":"low"})");
}

// Edits that cannot apply say nothing; thoughts are cleared; others are refused where they would.
TEST_F(Messages, EditTheirContextWhereItCanBeDone) {
  const auto edits = [](const std::string& list) {
    return request({{"context_management", {{"edits", json::parse(list)}}}});
  };
  post("/v1/messages", request({{"context_management", json::object()}}));
  post("/v1/messages", edits("[]"));
  post("/v1/messages", edits(R"([{"type":"clear_thinking_20251015","keep":"all"}])"));
  post("/v1/messages", edits(R"([{"type":"clear_tool_uses_20250919"}])"));
  const auto refused = [&](const std::string& list) {
    const json answer = post("/v1/messages", edits(list), 400);
    const std::string message = answer["error"]["message"];
    return message.substr(0, message.find(':'));
  };
  EXPECT_EQ(refused(R"([{"type":"compact_20260112",
                         "trigger":{"type":"input_tokens","value":5}}])"),
            "context_management.edits[0].trigger");
  EXPECT_EQ(refused(R"([{"type":"clear_all"}])"), "context_management.edits[0].type");
}

TEST(MessagesRead, ClearsThoughtsOfEarlierTurns) {
  const std::string turn =
      R"({"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"t"},)"
      R"({"type":"text","text":"b"}]},)";
  const auto request = read_messages_request(
      R"({"max_tokens":1,"messages":[)" + turn + turn + R"({"role":"user","content":"c"}],)" +
      R"("context_management":{"edits":[{"type":"clear_thinking_20251015",)"
      R"("keep":{"type":"thinking_turns","value":1}}]}})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->messages[1].reasoning, "");
  EXPECT_EQ(request->messages[3].reasoning, "t");
}

TEST(MessagesRead, RefusesResultsOfNoCall) {
  const auto refused = [](const std::string& messages) {
    const auto request = read_messages_request(R"({"max_tokens":1,"messages":[)" + messages + "]}");
    return request ? "" : request.error().parameter;
  };
  const std::string call =
      R"({"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]})";
  const auto result = [](const char* id) {
    return std::string(R"({"role":"user","content":[{"type":"tool_result","tool_use_id":")") + id +
           R"(","content":"r"}]})";
  };
  EXPECT_EQ(refused(call + "," + result("1")), "");
  EXPECT_EQ(refused(call + "," + result("2")), "messages[1].content[0].tool_use_id");
  EXPECT_EQ(refused(result("1")), "messages[0].content[0].tool_use_id");
  EXPECT_EQ(refused(call + "," + result("1") + "," + result("1")),
            "messages[2].content[0].tool_use_id");
  EXPECT_EQ(refused(call), "messages");
  EXPECT_EQ(refused(R"({"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f"}]})"),
            "messages[0].content[0]");
  EXPECT_EQ(refused(call + R"(,{"role":"user","content":[{"type":"text","text":"a"},)"
                           R"({"type":"tool_result","tool_use_id":"1"}]})"),
            "messages[1].content[1]");
}

}  // namespace
}  // namespace kakeya::anthropic
