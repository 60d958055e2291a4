// Requests for responses: what good ones mean, and that bad ones are refused by name.
#include "wire/openai/responses_read.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace kakeya::openai {
namespace {

using nlohmann::ordered_json;

// One stored response, "resp_1".
std::shared_ptr<const StoredResponse> find_one(std::string_view id) {
  if (id != "resp_1") return nullptr;
  return std::make_shared<const StoredResponse>(StoredResponse{
      .json = "{}",
      .messages = {{.role = "user", .content = "q"}, {.role = "assistant", .content = "r"}},
      .items = {{"msg_1_0", R"({"type":"message","role":"assistant","content":"said"})"}}});
}

service::Outcome<ResponseWish> read_fields(const std::string& fields) {
  return read_response_request("{" + fields + "}", find_one);
}

ResponseWish good(const std::string& fields) {
  auto wish = read_fields(fields);
  if (!wish) ADD_FAILURE() << wish.error().message;
  return wish ? *wish : ResponseWish();
}

// The parameter that is refused; "" if nothing is.
std::string refused(const std::string& fields) {
  const auto wish = read_fields(fields);
  if (wish) return "";
  EXPECT_THAT(wish.error().message, testing::StartsWith(wish.error().parameter));
  return wish.error().parameter;
}

std::string shown(const std::vector<ChatMessage>& messages) {
  std::string text;
  for (const ChatMessage& message : messages) {
    text += message.role + ":" + message.content;
    if (!message.reasoning.empty()) text += " (" + message.reasoning + ")";
    for (const ToolCall& call : message.tool_calls) {
      text += fmt::format(" {}={}{}", call.id, call.name, call.arguments);
    }
    if (!message.tool_call_id.empty()) {
      text += fmt::format(" for {} {}", message.tool_call_id, message.name);
    }
    text += "\n";
  }
  return text;
}

TEST(ResponsesRead, ReadsEveryField) {
  const ResponseWish wish = good(
      R"("model":"m","input":"a","instructions":"i","max_output_tokens":7,"temperature":0.5,)"
      R"("top_p":0.25,"stream":true,"store":false,"reasoning":{"effort":"low","summary":"auto"},)"
      R"("text":{"format":{"type":"text"},"verbosity":"medium"},"metadata":{"k":"v"},)"
      R"("include":["reasoning.encrypted_content"],"truncation":"disabled","background":false,)"
      R"("user":"u","safety_identifier":"s","prompt_cache_key":"p","service_tier":"auto",)"
      R"("parallel_tool_calls":false,"stream_options":{"include_obfuscation":false},)"
      R"("conversation":null,"prompt":null,"top_logprobs":0)");
  EXPECT_EQ(wish.answer.model, "m");
  EXPECT_EQ(shown(wish.answer.messages), "system:i\nuser:a\n");
  EXPECT_EQ(wish.answer.max_tokens, 7);
  EXPECT_EQ(wish.answer.sampling.temperature, 0.5F);
  EXPECT_EQ(wish.answer.sampling.top_p, 0.25F);
  EXPECT_TRUE(wish.answer.stream);
  EXPECT_FALSE(wish.answer.parallel_tool_calls);
  EXPECT_EQ(wish.answer.chat.enable_thinking, true);
  EXPECT_EQ(wish.answer.chat.arguments, R"({"reasoning_effort":"low"})");
  EXPECT_TRUE(wish.answer.chat.add_generation_prompt);
  EXPECT_FALSE(wish.store);
  EXPECT_TRUE(wish.conversation.empty());
  EXPECT_EQ(wish.repeated, ordered_json::parse(R"({"instructions":"i","previous_response_id":null,
    "reasoning":{"effort":"low","summary":"auto"},"text":{"format":{"type":"text"}},
    "metadata":{"k":"v"},"top_logprobs":0,"max_output_tokens":7,"temperature":0.5,"top_p":0.25,
    "store":false,
    "truncation":"disabled","service_tier":"default","background":false,"tools":[],
    "tool_choice":"auto","parallel_tool_calls":false})"));
}

TEST(ResponsesRead, LeavesOpenWhatIsNotSaid) {
  const ResponseWish wish = good(R"("input":"a")");
  EXPECT_EQ(shown(wish.answer.messages), "user:a\n");
  EXPECT_EQ(shown(wish.conversation), "user:a\n");
  EXPECT_TRUE(wish.store);
  EXPECT_FALSE(wish.answer.max_tokens.has_value());
  EXPECT_FALSE(wish.answer.chat.enable_thinking.has_value());
  EXPECT_EQ(wish.repeated["temperature"], nullptr);
  EXPECT_EQ(good(R"("input":"a","reasoning":{"effort":"none"})").answer.chat.enable_thinking,
            false);
  EXPECT_EQ(good(R"("input":"a","reasoning":{"effort":"max"})").answer.chat.arguments,
            R"({"reasoning_effort":"max"})");
  EXPECT_EQ(good(R"("input":"a","reasoning":null)").repeated["reasoning"]["effort"], nullptr);
}

TEST(ResponsesRead, ReadsItemsAsMessages) {
  const ResponseWish wish = good(R"("instructions":"i","input":[
    {"role":"developer","content":"d"},
    {"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
    {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"s"}],
     "content":[{"type":"reasoning_text","text":"t"}],"encrypted_content":"x"},
    {"type":"message","id":"msg_1","status":"completed","role":"assistant",
     "content":[{"type":"output_text","text":"c","annotations":[]}]},
    {"type":"function_call","id":"fc_1","call_id":"1","name":"f","arguments":"{\"z\":1}"},
    {"type":"function_call","call_id":"2","name":"g","arguments":"{}"},
    {"type":"function_call_output","call_id":"2","output":"r2"},
    {"type":"function_call_output","call_id":"1","output":[{"type":"input_text","text":"r1"}]},
    {"type":"reasoning","summary":[{"type":"summary_text","text":"s"}]},
    {"role":"assistant","content":"e"},
    {"role":"assistant","content":"f"},
    {"role":"system","content":"n"},
    {"role":"user","content":"h"}])");
  EXPECT_EQ(shown(wish.answer.messages), R"(system:i

d
user:ab
assistant:c (t) 1=f{"z":1} 2=g{}
tool:r2 for 2 g
tool:r1 for 1 f
assistant:e (s)
assistant:f
system:n
user:h
)");
  EXPECT_EQ(wish.conversation.size(), 9u);
  EXPECT_EQ(wish.conversation[0].content, "d") << "instructions are not carried over";
}

TEST(ResponsesRead, GoesOnFromAStoredResponse) {
  const ResponseWish wish =
      good(R"("previous_response_id":"resp_1","instructions":"i","input":"a")");
  EXPECT_EQ(shown(wish.answer.messages), "system:i\nuser:q\nassistant:r\nuser:a\n");
  EXPECT_EQ(shown(wish.conversation), "user:q\nassistant:r\nuser:a\n");
  // An assistant's item behind the answer is a message of its own.
  EXPECT_EQ(shown(good(R"("previous_response_id":"resp_1","input":[
              {"role":"assistant","content":"s"},{"role":"user","content":"a"}])")
                      .answer.messages),
            "user:q\nassistant:r\nassistant:s\nuser:a\n");
  EXPECT_EQ(shown(good(R"("input":[{"type":"item_reference","id":"msg_1_0"},
                                   {"role":"user","content":"a"}])")
                      .answer.messages),
            "assistant:said\nuser:a\n");
  const auto unknown = read_fields(R"("previous_response_id":"resp_2","input":"a")");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().status, StatusCode::kNotFound);
  EXPECT_EQ(unknown.error().code, "previous_response_not_found");
  EXPECT_EQ(unknown.error().parameter, "previous_response_id");
}

TEST(ResponsesRead, ShowsFlatToolsAsTemplatesKnowThem) {
  const std::string tools =
      R"([{"type":"function","name":"f","strict":true,"parameters":{"b":1,"a":[2.0]}, "description":"d"},)"
      R"({"name":"g","type":"function"}])";
  const ResponseWish wish = good(fmt::format(
      R"("input":"a","tools":{},"tool_choice":{{"type":"function","name":"g"}})", tools));
  EXPECT_THAT(
      wish.answer.chat.tools,
      testing::ElementsAre(
          R"({"type":"function","function":{"name":"f","strict":true,"parameters":{"b":1,"a":[2.0]}, "description":"d"}})",
          R"({"type":"function","function":{"name":"g"}})"));
  EXPECT_EQ(wish.answer.tool_choice, service::ToolChoice::kNamed);
  EXPECT_EQ(wish.answer.tool_name, "g");
  EXPECT_EQ(wish.repeated["tools"], ordered_json::parse(tools));
  EXPECT_EQ(wish.repeated["tool_choice"], ordered_json::parse(R"({"type":"function","name":"g"})"));
  const ResponseWish none =
      good(fmt::format(R"("input":"a","tools":{},"tool_choice":"none")", tools));
  EXPECT_TRUE(none.answer.chat.tools.empty());
  EXPECT_EQ(none.repeated["tools"].size(), 2u);
  EXPECT_EQ(good(fmt::format(R"("input":"a","tools":{},"tool_choice":"required")", tools))
                .answer.tool_choice,
            service::ToolChoice::kRequired);
}

// Codex lists the tools of an MCP server so.
TEST(ResponsesRead, ShowsToolsOfNamespacesByNamesOfTheirOwn) {
  const std::string tools =
      R"("tools":[{"type":"function","name":"f"},)"
      R"({"type":"namespace","name":"mcp__a__","description":"d","tools":[)"
      R"({"type":"function","name":"f","parameters":{"b":1,"a":2}}]},)"
      R"({"type":"namespace","name":"b","tools":[{"type":"function","name":"f"}]}])";
  const ResponseWish wish = good(
      R"("tool_choice":{"type":"function","namespace":"b","name":"f"},"input":[
        {"type":"function_call","call_id":"1","namespace":"b","name":"f","arguments":"{}"},
        {"type":"function_call_output","call_id":"1","output":"r"}],)" +
      tools);
  EXPECT_THAT(
      wish.answer.chat.tools,
      testing::ElementsAre(
          R"({"type":"function","function":{"name":"f"}})",
          R"({"type":"function","function":{"name":"mcp__a__f","parameters":{"b":1,"a":2}}})",
          R"({"type":"function","function":{"name":"b__f"}})"));
  EXPECT_EQ(wish.answer.tool_name, "b__f");
  EXPECT_EQ(wish.repeated["tool_choice"],
            ordered_json::parse(R"({"type":"function","name":"f","namespace":"b"})"));
  EXPECT_EQ(shown(wish.answer.messages), "assistant: 1=b__f{}\ntool:r for 1 b__f\n");
  EXPECT_EQ(wish.tools, (ClientTools{{"f", {.name = "f"}},
                                     {"mcp__a__f", {.space = "mcp__a__", .name = "f"}},
                                     {"b__f", {.space = "b", .name = "f"}}}));
  EXPECT_EQ(good(R"("input":"a","tool_choice":{"type":"allowed_tools","mode":"auto",)"
                 R"("tools":[{"type":"function","namespace":"b","name":"f"}]},)" +
                 tools)
                .answer.chat.tools.size(),
            1u);
  const auto refused_tools = [](const std::string& list) {
    return refused(R"("input":"a","tools":[)" + list + "]");
  };
  EXPECT_EQ(refused_tools(R"({"type":"namespace","name":"a"})"), "tools[0]");
  EXPECT_EQ(refused_tools(R"({"type":"namespace","name":"","tools":[]})"), "tools[0]");
  EXPECT_EQ(refused_tools(R"({"type":"namespace","name":"a","tools":5})"), "tools[0].tools");
  EXPECT_EQ(refused_tools(R"({"type":"namespace","name":"a","tools":[{"type":"web_search"}]})"),
            "tools[0].tools[0].type");
  // The model could not tell these apart.
  EXPECT_EQ(refused_tools(R"({"type":"function","name":"a__f"},{"type":"namespace","name":"a",)"
                          R"("tools":[{"type":"function","name":"f"}]})"),
            "tools[1].tools[0].name");
}

// Codex lists its apply_patch so for models that it knows.
TEST(ResponsesRead, ShowsCustomToolsAsFunctionsOfOneText) {
  const std::string tools =
      R"("tools":[{"type":"custom","name":"p","description":"d","format":{"type":"grammar",)"
      R"("syntax":"lark","definition":"start: \"a\""}},{"type":"custom","name":"q"}])";
  const ResponseWish wish = good(R"("tool_choice":{"type":"custom","name":"p"},"input":[
        {"type":"custom_tool_call","call_id":"1","name":"p","input":"a"},
        {"type":"custom_tool_call_output","call_id":"1","output":"r"}],)" +
                                 tools);
  EXPECT_THAT(
      wish.answer.chat.tools,
      testing::ElementsAre(
          R"({"type":"function","function":{"name":"p","description":"d","parameters":{"type":"object","properties":{"input":{"type":"string","description":"A text of this grammar (lark):\nstart: \"a\""}},"required":["input"],"additionalProperties":false}}})",
          R"({"type":"function","function":{"name":"q","parameters":{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}}})"));
  EXPECT_EQ(wish.answer.tool_name, "p");
  EXPECT_EQ(wish.repeated["tool_choice"], ordered_json::parse(R"({"type":"custom","name":"p"})"));
  EXPECT_TRUE(wish.tools.at("p").is_custom);
  EXPECT_EQ(shown(wish.answer.messages), "assistant: 1=p{\"input\":\"a\"}\ntool:r for 1 p\n");
  const auto refused_tool = [](const std::string& members) {
    return refused(R"("input":"a","tools":[{"type":"custom")" + members + "}]");
  };
  EXPECT_EQ(refused_tool(""), "tools[0]");
  EXPECT_EQ(refused_tool(R"(,"name":"p","description":5)"), "tools[0]");
  EXPECT_EQ(refused_tool(R"(,"name":"p","format":{"type":"grammar"})"), "tools[0].format");
  EXPECT_EQ(refused_tool(R"(,"name":"p","format":{"type":"text"})"), "");
}

// Codex lists one in each request unless it is told not to.
TEST(ResponsesRead, LeavesOutASearchThatMayNotAskTheWeb) {
  const ResponseWish wish = good(R"("input":"a","tools":[{"type":"function","name":"f"},)"
                                 R"({"type":"web_search","external_web_access":false}])");
  EXPECT_THAT(wish.answer.chat.tools,
              testing::ElementsAre(R"({"type":"function","function":{"name":"f"}})"));
  EXPECT_EQ(wish.repeated["tools"].size(), 2u);
  EXPECT_EQ(refused(R"("input":"a","tools":[{"type":"web_search","external_web_access":true}])"),
            "tools[0].type");
  EXPECT_EQ(refused(R"("input":"a","tool_choice":"required",)"
                    R"("tools":[{"type":"web_search","external_web_access":false}])"),
            "tool_choice");
}

TEST(ResponsesRead, ReadsTheFormOfTheAnswer) {
  const std::string format =
      R"({"type":"json_schema","name":"n","schema":{"type":"object","properties":{"b":{},"a":{}}},"strict":true})";
  const ResponseWish wish = good(fmt::format(R"("input":"a","text":{{"format":{}}})", format));
  EXPECT_EQ(wish.answer.format.kind, service::AnswerFormat::Kind::kJsonSchema);
  EXPECT_EQ(wish.answer.format.text, R"({"type":"object","properties":{"b":{},"a":{}}})");
  EXPECT_EQ(wish.answer.format.field, "text.format");
  EXPECT_EQ(nlohmann::json(wish.repeated["text"]["format"]), nlohmann::json::parse(format));
  EXPECT_EQ(good(R"("input":"a","text":{"format":{"type":"json_object"}})").answer.format.kind,
            service::AnswerFormat::Kind::kJsonObject);
  EXPECT_TRUE(good(R"("input":"a","text":{"format":{"type":"text"}})").answer.format.is_free());
  EXPECT_EQ(good(R"("input":"a","guided_regex":"b")").answer.format.kind,
            service::AnswerFormat::Kind::kRegex);
  EXPECT_EQ(good(R"("input":"a","response_format":{"type":"json_object"})").answer.format.kind,
            service::AnswerFormat::Kind::kJsonObject);
}

TEST(ResponsesRead, RefusesByName) {
  const auto with = [](const std::string& field) { return refused(R"("input":"a",)" + field); };
  EXPECT_EQ(with(R"("top_k":1)"), "");
  EXPECT_EQ(with(R"("temperature":3)"), "temperature");
  EXPECT_EQ(with(R"("max_output_tokens":0)"), "max_output_tokens");
  EXPECT_EQ(with(R"("instructions":["a"])"), "instructions");
  EXPECT_EQ(with(R"("previous_response_id":1)"), "previous_response_id");
  EXPECT_EQ(with(R"("store":1)"), "store");
  EXPECT_EQ(with(R"("truncation":"auto")"), "truncation");
  EXPECT_EQ(with(R"("background":true)"), "background");
  EXPECT_EQ(with(R"("conversation":"conv_1")"), "conversation");
  EXPECT_EQ(with(R"("prompt":{"id":"p"})"), "prompt");
  EXPECT_EQ(with(R"("stop":"x")"), "stop");
  EXPECT_EQ(with(R"("messages":[1])"), "messages");
  EXPECT_EQ(with(R"("max_tokens":5)"), "max_tokens");
  EXPECT_EQ(with(R"("response_format":{"type":"yaml"})"), "response_format.type");
  EXPECT_EQ(with(R"("guided_regex":5)"), "guided_regex");
  EXPECT_EQ(with(R"("top_logprobs":21)"), "top_logprobs");
  EXPECT_EQ(with(R"("logprobs":true)"), "logprobs");
  EXPECT_EQ(with(R"("include":["message.input_image.image_url"])"), "include");
  EXPECT_EQ(with(R"("top_logprobs":2,"tools":[{"type":"function","name":"f"}])"), "tools");
  EXPECT_EQ(with(R"("text":{"format":{"type":"grammar"}})"), "text.format.type");
  EXPECT_EQ(with(R"("text":{"format":"text"})"), "text.format.type");
  EXPECT_EQ(with(R"("text":{"format":{"type":"json_schema","name":"n"}})"), "text.format.schema");
  EXPECT_EQ(with(R"("text":{"format":{"type":"json_object"}},"guided_regex":"a")"), "guided_regex");
  EXPECT_EQ(with(R"("text":{"verbosity":"much"})"), "text.verbosity");
  EXPECT_EQ(with(R"("text":{"verbosity":"low"})"), "");
  EXPECT_EQ(with(R"("system":"a")"), "system");
  EXPECT_EQ(with(R"("thinking":{"type":"enabled"})"), "thinking");
  EXPECT_EQ(with(R"("reasoning":{"effort":"most"})"), "reasoning.effort");
  EXPECT_EQ(with(R"("reasoning":{"summary":"detailed"})"), "");
  EXPECT_EQ(with(R"("reasoning":{"summary":"none"})"), "reasoning.summary");
  EXPECT_EQ(with(R"("reasoning":{"mode":"pro"})"), "reasoning.mode");
  EXPECT_EQ(with(R"("metadata":{"k":1})"), "metadata");
  EXPECT_EQ(with(R"("stream_options":{"include_obfuscation":true})"),
            "stream_options.include_obfuscation");
  EXPECT_EQ(with(R"("tools":[{"type":"web_search"}])"), "tools[0].type");
  EXPECT_EQ(with(R"("tools":[{"type":"function"}])"), "tools[0]");
  EXPECT_EQ(with(R"("tools":[5])"), "tools[0]");
  EXPECT_EQ(with(R"("tools":5)"), "tools");
  const std::string tools = R"("tools":[{"type":"function","name":"f"}],)";
  EXPECT_EQ(with(tools + R"("tool_choice":{"type":"function","name":"g"})"), "tool_choice");
  EXPECT_EQ(with(tools + R"("tool_choice":{"type":"allowed_tools","tools":[]})"), "tool_choice");
  EXPECT_EQ(with(tools + R"("tool_choice":{"type":"allowed_tools","mode":"auto",
                                         "tools":[{"type":"function","name":"f"}]})"),
            "");
  EXPECT_EQ(with(R"("tool_choice":"required")"), "tool_choice");
}

TEST(ResponsesRead, ReadsWhatAgentsSay) {
  const std::string said = R"({"type":"agent_message","author":"/root/child","recipient":"/root",)"
                           R"("content":[{"type":"input_text","text":"It is repaired."}]})";
  EXPECT_EQ(shown(good(R"("input":[{"role":"user","content":"a"},)" + said +
                       R"(,{"role":"assistant","content":"b"}])")
                      .answer.messages),
            "user:a\nassistant:[/root/child says to /root]\nIt is repaired.\nassistant:b\n");
  EXPECT_EQ(refused(R"("input":[{"type":"agent_message","author":"x","content":"c"}])"),
            "input[0].recipient");
  EXPECT_EQ(refused(R"("input":[{"type":"agent_message","author":"x","recipient":"y"}])"),
            "input[0].content");
}

TEST(ResponsesRead, TakesToolsAmongItems) {
  const ResponseWish wish =
      good(R"("tools":[{"type":"function","name":"g"}],"input":[{"type":"additional_tools",)"
           R"("role":"developer","tools":[{"type":"namespace","name":"s","tools":)"
           R"([{"type":"function","name":"f","parameters":{"b":1,"a":2}}]}]},)"
           R"({"role":"user","content":"a"}])");
  EXPECT_THAT(wish.answer.chat.tools,
              testing::ElementsAre(
                  R"({"type":"function","function":{"name":"g"}})",
                  R"({"type":"function","function":{"name":"s__f","parameters":{"b":1,"a":2}}})"));
  EXPECT_EQ(shown(wish.answer.messages), "user:a\n");
  const auto refused_item = [](const std::string& member) {
    return refused(R"("input":[{"role":"user","content":"a"},{"type":"additional_tools")" + member +
                   "}]");
  };
  EXPECT_EQ(refused_item(""), "input[1].tools");
  EXPECT_EQ(refused_item(R"(,"tools":[{"type":"web_search"}])"), "input[1].tools[0].type");
}

// Commands that a client has run for another provider are calls like others.
TEST(ResponsesRead, ReadsCommandsAndTheirResults) {
  const auto messages = [](const char* id, const char* output) {
    return shown(good(fmt::format(R"("input":[{{"role":"user","content":"a"}},
        {{"type":"local_shell_call","{0}":"1","status":"completed",
          "action":{{"type":"exec","command":["ls"]}}}},
        {{"type":"{1}","{0}":"1","output":"r"}}])",
                                  id, output))
                     .answer.messages);
  };
  const std::string expected =
      R"(user:a
assistant: 1=local_shell{"command":["ls"],"type":"exec"}
tool:r for 1 local_shell
)";
  EXPECT_EQ(messages("call_id", "function_call_output"), expected);
  EXPECT_EQ(messages("call_id", "local_shell_call_output"), expected);
  EXPECT_EQ(messages("id", "local_shell_call_output"), expected);
}

// Words of a user while a tool runs come behind its result.
TEST(ResponsesRead, PutsResultsBehindTheirCalls) {
  EXPECT_EQ(shown(good(R"("input":[{"role":"user","content":"a"},
                {"type":"function_call","call_id":"1","name":"f","arguments":"{}"},
                {"type":"function_call","call_id":"2","name":"g","arguments":"{}"},
                {"role":"user","content":"b"},
                {"type":"function_call_output","call_id":"2","output":"r2"},
                {"role":"assistant","content":"c"},
                {"type":"function_call_output","call_id":"1","output":"r1"}])")
                      .answer.messages),
            R"(user:a
assistant: 1=f{} 2=g{}
tool:r2 for 2 g
tool:r1 for 1 f
user:b
assistant:c
)");
  const std::string answered = R"("input":[
      {"type":"function_call","call_id":"1","name":"f","arguments":"{}"},
      {"type":"function_call_output","call_id":"1","output":"r"},
      {"type":"function_call_output","call_id":"1","output":"r"}])";
  EXPECT_EQ(refused(answered), "input[2].call_id");
}

TEST(ResponsesRead, RefusesItemsByTheirPlace) {
  const auto input = [](const std::string& items) { return refused(R"("input":)" + items); };
  EXPECT_EQ(refused(R"("model":"m")"), "input");
  EXPECT_EQ(input("5"), "input");
  EXPECT_EQ(input("[]"), "input");
  EXPECT_EQ(input("[5]"), "input[0]");
  EXPECT_EQ(input(R"([{"type":"reasoning","summary":[]}])"), "input");
  EXPECT_EQ(input(R"([{"type":"pasta"}])"), "input[0].type");
  EXPECT_EQ(input(R"([{"role":"tool","content":"a"}])"), "input[0].role");
  EXPECT_EQ(input(R"([{"role":"user"}])"), "input[0].content");
  EXPECT_EQ(input(R"([{"role":"user","content":[{"type":"input_text","text":"a"},
                                               {"type":"input_image","image_url":"u"}]}])"),
            "input[0].content[1]");
  EXPECT_EQ(input(R"([{"type":"function_call","name":"f","arguments":"{}"}])"), "input[0].call_id");
  const std::string call =
      R"([{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},)";
  EXPECT_EQ(input(call + R"({"type":"function_call_output","call_id":"1","output":"r"}])"), "");
  EXPECT_EQ(input(call + R"({"type":"function_call_output","call_id":"2","output":"r"}])"),
            "input[1].call_id");
  EXPECT_EQ(input(call + R"({"role":"user","content":"a"}])"), "");
  EXPECT_EQ(input(call + R"({"type":"function_call_output","call_id":"1"}])"), "input[1].output");
  for (const char* const id : {"msg_1_1", "msg_2_0", "msg", "_", "__", "msg_1"}) {
    EXPECT_EQ(input(fmt::format(R"([{{"type":"item_reference","id":"{}"}}])", id)), "input[0].id");
  }
  // An item that is referred to again and again would be a long conversation in a short body.
  const std::string reference = R"({"type":"item_reference","id":"msg_1_0"})";
  EXPECT_EQ(input("[" + reference + "," + reference + "]"), "input[1].id");
}

}  // namespace
}  // namespace kakeya::openai
