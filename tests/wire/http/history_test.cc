// Parts of a history that no model here can be shown: a table says what stands for them, the same
// in every API. A conversation that was answered once goes on.
#include "wire/http/history.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "wire/anthropic/messages_read.h"
#include "wire/ollama/requests_read.h"
#include "wire/openai/completion_read.h"
#include "wire/openai/responses_read.h"

namespace kakeya::wire {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

enum class Place { kUser, kSystem, kTool, kAnswer };
constexpr Place kPlaces[] = {Place::kUser, Place::kSystem, Place::kTool, Place::kAnswer};

// A conversation whose message of this place ends with `part`, and goes on behind it.
json chat(Place place, const json& part) {
  const auto content = [&](Place here) -> json {
    if (here != place) return "x";
    return json::array({{{"type", "text"}, {"text", "x"}}, part});
  };
  const json call = {{"id", "1"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}};
  return {{"messages",
           {{{"role", "system"}, {"content", content(Place::kSystem)}},
            {{"role", "user"}, {"content", content(Place::kUser)}},
            {{"role", "assistant"},
             {"content", content(Place::kAnswer)},
             {"tool_calls", json::array({call})}},
            {{"role", "tool"}, {"tool_call_id", "1"}, {"content", content(Place::kTool)}},
            {{"role", "user"}, {"content", "x"}}}}};
}

json messages(Place place, const json& part) {
  const auto content = [&](Place here) {
    json blocks = json::array({{{"type", "text"}, {"text", "x"}}});
    if (here == place) blocks.push_back(part);
    return blocks;
  };
  json answer = content(Place::kAnswer);
  answer.push_back({{"type", "tool_use"}, {"id", "1"}, {"name", "f"}, {"input", json::object()}});
  const json result = {
      {"type", "tool_result"}, {"tool_use_id", "1"}, {"content", content(Place::kTool)}};
  return {{"max_tokens", 1},
          {"system", content(Place::kSystem)},
          {"messages",
           {{{"role", "user"}, {"content", content(Place::kUser)}},
            {{"role", "assistant"}, {"content", answer}},
            {{"role", "user"}, {"content", json::array({result})}}}}};
}

json response(Place place, const json& part) {
  const auto content = [&](Place here) {
    json parts = json::array({{{"type", "input_text"}, {"text", "x"}}});
    if (here == place) parts.push_back(part);
    return parts;
  };
  return {
      {"input",
       {{{"role", "developer"}, {"content", content(Place::kSystem)}},
        {{"role", "user"}, {"content", content(Place::kUser)}},
        {{"role", "assistant"}, {"content", content(Place::kAnswer)}},
        {{"type", "function_call"}, {"call_id", "1"}, {"name", "f"}, {"arguments", "{}"}},
        {{"type", "function_call_output"}, {"call_id", "1"}, {"output", content(Place::kTool)}}}}};
}

// All that a conversation says, or why it is refused.
struct Read {
  std::string said = {};
  std::optional<service::Refusal> refusal = {};
};

template <typename Outcome>
Read read_of(const Outcome& outcome, const std::vector<ChatMessage>* messages) {
  Read read;
  if (!outcome) read.refusal = outcome.error();
  if (!outcome) return read;
  for (const ChatMessage& message : *messages) {
    read.said += message.role + ":" + message.content + "\n";
    for (const ToolCall& call : message.tool_calls) read.said += call.name + call.arguments + "\n";
  }
  return read;
}

Read read_chat(const json& body) {
  const auto request = openai::read_chat_request(body.dump());
  return read_of(request, request ? &request->messages : nullptr);
}
Read read_messages(const json& body) {
  const auto request = anthropic::read_messages_request(body.dump());
  return read_of(request, request ? &request->messages : nullptr);
}
Read read_response(const json& body) {
  const auto wish = openai::read_response_request(
      body.dump(),
      [](std::string_view) -> std::shared_ptr<const openai::StoredResponse> { return nullptr; });
  return read_of(wish, wish ? &wish->answer.messages : nullptr);
}

struct Part {
  const char* type;
  const char* said;  // what stands for it
};
constexpr Part kMedia[] = {{"image", "an image"},       {"image_url", "an image"},
                           {"input_image", "an image"}, {"document", "a document"},
                           {"file", "a document"},      {"input_file", "a document"},
                           {"input_audio", "a sound"},  {"video_url", "a video"}};
// Blocks of answers of other providers.
constexpr Part kMade[] = {{"redacted_thinking", ""},
                          {"server_tool_use", "ran elsewhere"},
                          {"web_search_tool_result", "ran elsewhere"},
                          {"code_execution_tool_result", "ran elsewhere"},
                          {"mcp_tool_use", "ran elsewhere"},
                          {"mcp_tool_result", "ran elsewhere"},
                          {"tool_reference", "a tool"}};

TEST(Histories, SayWhatTheyHeldWhereNobodyElseCanBeAsked) {
  using Make = json (*)(Place, const json&);
  using ReadIt = Read (*)(const json&);
  const std::pair<Make, ReadIt> kApis[] = {
      {chat, read_chat}, {messages, read_messages}, {response, read_response}};
  for (const auto& [make, read] : kApis) {
    const auto check = [make = make, read = read](const Part& part) {
      for (const Place place : kPlaces) {
        const json body = make(place, {{"type", part.type}});
        const Read got = read(body);
        const bool is_said = place == Place::kUser || place == Place::kSystem;
        if (is_said) {
          ASSERT_TRUE(got.refusal) << body;
          EXPECT_THAT(got.refusal->message, HasSubstr(part.type)) << body;
          continue;
        }
        ASSERT_FALSE(got.refusal) << body << got.refusal->message;
        EXPECT_THAT(got.said, HasSubstr(part.said)) << body;
      }
    };
    for (const Part& part : kMedia) check(part);
    for (const Part& part : kMade) check(part);
    // A type that nobody knows is a mistake.
    for (const Place place : kPlaces) EXPECT_TRUE(read(make(place, {{"type", "pasta"}})).refusal);
  }
}

TEST(Histories, KeepTheTextsOfSuchParts) {
  const json cited = {{"type", "search_result"},
                      {"title", "Title"},
                      {"source", "https://example.com"},
                      {"content", {{{"type", "text"}, {"text", "Found."}}}}};
  EXPECT_THAT(read_messages(messages(Place::kTool, cited)).said,
              HasSubstr("Title\nhttps://example.com\nFound."));
  const json written = {
      {"type", "document"},
      {"title", "Notes"},
      {"source", {{"type", "text"}, {"media_type", "text/plain"}, {"data", "Written."}}}};
  for (const Place place : {Place::kUser, Place::kTool}) {
    EXPECT_THAT(read_messages(messages(place, written)).said, HasSubstr("Notes\nWritten."));
  }
  EXPECT_THAT(
      read_messages(messages(Place::kAnswer, {{"type", "compaction"}, {"content", "Sum."}})).said,
      HasSubstr("Sum."));
  EXPECT_THAT(read_chat(chat(Place::kAnswer, {{"type", "refusal"}, {"refusal", "No."}})).said,
              HasSubstr("No."));
  EXPECT_THAT(
      read_response(response(Place::kAnswer, {{"type", "refusal"}, {"refusal", "No."}})).said,
      HasSubstr("No."));
  EXPECT_THAT(read_chat(chat(Place::kTool, {{"type", "image_url"}})).said,
              HasSubstr("tool:x\n[an image, which this model cannot see]\n"));
}

// Items of the Responses API beside messages.
TEST(Histories, TakeItemsOfOtherProviders) {
  const auto with = [](const std::vector<json>& items) {
    json input = json::array({{{"role", "user"}, {"content", "x"}}});
    for (const json& item : items) input.push_back(item);
    input.push_back({{"role", "user"}, {"content", "y"}});
    return read_response({{"input", input}});
  };
  for (const char* const type :
       {"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call",
        "computer_call", "computer_call_output", "local_shell_call", "local_shell_call_output",
        "shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output",
        "mcp_call", "tool_search_call", "tool_search_output"}) {
    const Read got = with({{{"type", type}}});
    ASSERT_FALSE(got.refusal) << got.refusal->message;
    EXPECT_THAT(got.said, HasSubstr("ran elsewhere]")) << type;
  }
  for (const char* const type :
       {"mcp_list_tools", "mcp_approval_request", "mcp_approval_response"}) {
    EXPECT_EQ(with({{{"type", type}}}).said, "user:x\nuser:y\n");
  }
  EXPECT_THAT(with({{{"type", "compaction"}, {"encrypted_content", "x"}}}).said,
              HasSubstr("which only its author can read]"));
  EXPECT_THAT(with({{{"type", "pasta"}}}).refusal->message, HasSubstr("input[1].type"));
  const json call = {
      {"type", "custom_tool_call"}, {"call_id", "1"}, {"name", "patch"}, {"input", "a \"b\""}};
  const json result = {{"type", "custom_tool_call_output"}, {"call_id", "1"}, {"output", "done"}};
  EXPECT_EQ(with({call, result}).said,
            "user:x\nassistant:\npatch{\"input\":\"a \\\"b\\\"\"}\ntool:done\nuser:y\n");
}

TEST(Histories, OfOllamaAreNoOthers) {
  const auto read = [](const std::string& messages) {
    return ollama::read_chat(R"({"messages":[{"role":"user","content":"a"},)" + messages + "]}",
                             4096);
  };
  const std::string call =
      R"({"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{}}}]},)";
  const auto seen =
      read(call + R"({"role":"tool","tool_name":"f","content":"x","images":["aGVsbG8="]})");
  ASSERT_TRUE(seen) << seen.error().message;
  EXPECT_THAT(seen->messages[2].content, StartsWith("x\n[an image"));
  EXPECT_FALSE(read(R"({"role":"user","content":"x","images":["aGVsbG8="]})"));
}

}  // namespace
}  // namespace kakeya::wire
