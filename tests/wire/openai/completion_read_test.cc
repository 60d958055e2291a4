// Bodies of requests: what good ones mean, and that bad ones are refused by name.
#include "wire/openai/completion_read.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "wire/http/request_limits.h"
#include "wire/openai/completion_write.h"
#include "wire/openai/tools_read.h"

namespace kakeya::openai {
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
  const service::SamplingWish& sampling = request->sampling;
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
}

TEST(OpenaiRead, ReadsWhetherToolsAreToBeCalled) {
  const auto read = [](const std::string& fields) {
    return read_chat_request(body_with(
        R"("tools":[{"type":"function","function":{"name":"f","strict":true}}],)" + fields));
  };
  EXPECT_EQ(read(R"("tool_choice":"auto")")->tool_choice, service::ToolChoice::kAuto);
  EXPECT_TRUE(read(R"("tool_choice":"auto")")->may_call_tools());
  EXPECT_EQ(read(R"("tool_choice":"required")")->tool_choice, service::ToolChoice::kRequired);
  EXPECT_FALSE(read(R"("tool_choice":"none")")->may_call_tools());
  const auto named = read(
      R"("tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false)");
  EXPECT_EQ(named->tool_choice, service::ToolChoice::kNamed);
  EXPECT_EQ(named->tool_name, "f");
  EXPECT_FALSE(named->parallel_tool_calls);
  for (const char* const choice :
       {R"({"type":"function","function":{"name":"g"}})", R"({"type":"allowed_tools"})", "7",
        R"({"type":"function","function":"f"})", "\"f\""}) {
    EXPECT_EQ(read(std::string("\"tool_choice\":") + choice).error().parameter, "tool_choice");
  }
  EXPECT_EQ(read_chat_request(body_with(R"("tool_choice":"required")")).error().message,
            "tool_choice: expected tools beside required, got none");
  EXPECT_TRUE(read_chat_request(body_with(R"("tool_choice":"none")")).has_value());
}

std::string with_tools(const std::string& tools) {
  return body_with(R"("tools":[)" + tools + "]");
}

TEST(OpenaiRead, TakesAsManyToolsAsAContextHolds) {
  std::string parameters;
  for (int i = 0; i < 10; ++i) {
    parameters +=
        fmt::format(R"({}"p{}":{{"type":"string","description":"d, [{{"}})", i > 0 ? "," : "", i);
  }
  std::string tools;
  for (int i = 0; i < 200; ++i) {
    tools += fmt::format(R"({}{{"type":"function","function":{{"name":"t{}","parameters":)"
                         R"({{"type":"object","properties":{{{}}}}}}}}})",
                         i > 0 ? " ,\n " : "", i, parameters);
  }
  // The name occurs within another member, too, and in one that is written otherwise and comes
  // later.
  const auto request = read_chat_request(
      body_with(R"("metadata":{"tools":[1]},"tools":[],"\u0074ools": [)" + tools + "]"));
  ASSERT_TRUE(request.has_value()) << request.error().message;
  ASSERT_EQ(request->chat.tools.size(), 200u);
  for (const std::size_t i : {std::size_t{0}, std::size_t{199}}) {
    EXPECT_EQ(wire::Json::parse(request->chat.tools[i])["function"]["name"], fmt::format("t{}", i));
  }
  // Reading members in their order takes a search for each.
  std::string many = "0";
  for (std::size_t i = 0; i < wire::kMostValuesOfATool; ++i) many += ",0";
  EXPECT_EQ(read_chat_request(with_tools(R"({"function":{"name":"a","x":[)" + many + "]}}"))
                .error()
                .parameter,
            "tools[0]");
}

TEST(OpenaiRead, SaysWhatIsWrongWithATool) {
  for (const char* tool : {R"({"type":"web_search"})", R"({"name":"flat","parameters":{}})", "7",
                           R"({"type":"function","function":{}})"}) {
    const auto request = read_chat_request(with_tools(tool));
    ASSERT_FALSE(request.has_value()) << tool;
    EXPECT_EQ(request.error().parameter, "tools[0]");
    EXPECT_NE(request.error().message.find("\"function\": {\"name\""), std::string::npos);
  }
}

// Whoever repeats what a server has answered can go on.
TEST(OpenaiRead, TakesHistoriesAsClientsRepeatThem) {
  const auto request = read_chat_request(
      R"({"messages":[{"role":"user","content":"q"},)"
      R"({"role":"assistant","content":null,"reasoning":"r","tool_calls":[{"id":"1","function":)"
      R"({"name":"b","arguments":"{\"cut"}}]},{"role":"tool","content":null,"tool_call_id":"1"},)"
      R"({"role":"assistant","content":null},{"role":"user","content":"go on"}]})");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_EQ(request->model, "");
  EXPECT_EQ(request->messages[1].content, "");
  EXPECT_EQ(request->messages[1].reasoning, "r");
  EXPECT_EQ(request->messages[1].tool_calls[0].arguments, "{\"cut");
  // A result without a call would vanish.
  EXPECT_EQ(read_chat_request(R"({"messages":[{"role":"tool","content":"r"}]})").error().parameter,
            "messages[0]");
  EXPECT_EQ(
      read_chat_request(
          R"({"messages":[{"role":"assistant","tool_calls":[{"id":"1","function":)"
          R"({"name":"b","arguments":"{}"}}]},{"role":"tool","tool_call_id":"2","content":""}]})")
          .error()
          .parameter,
      "messages[1].tool_call_id");
}

TEST(OpenaiRead, NumbersAreAsWideAsClientsSendThem) {
  const auto request = read_chat_request(
      body_with(R"("max_tokens":40.0,"seed":18446744073709551615,"top_p":0,"top_k":-1,"stop":[""],)"
                R"("repetition_penalty":1.5,"min_tokens":3,"stop_token_ids":[7],)"
                R"("allowed_token_ids":[8,9.0],"priority":-2)"));
  ASSERT_TRUE(request.has_value()) << request.error().message;
  EXPECT_EQ(request->max_tokens, 40);
  EXPECT_EQ(request->sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(request->sampling.top_p, 0.0F);
  EXPECT_EQ(request->sampling.top_k, 0);
  EXPECT_EQ(request->sampling.repetition_penalty, 1.5F);
  EXPECT_TRUE(request->stop_strings.empty());
  EXPECT_EQ(request->min_tokens, 3);
  EXPECT_EQ(request->stop_ids, std::vector<TokenId>{7});
  EXPECT_EQ(request->allowed_ids, (std::vector<TokenId>{8, 9}));
  EXPECT_EQ(request->priority, -2);
  EXPECT_FALSE(read_chat_request(body_with(R"("max_tokens":-1)"))->max_tokens.has_value());
  EXPECT_EQ(read_chat_request(body_with(R"("n_predict":5)"))->max_tokens, 5);
  EXPECT_EQ(read_chat_request(body_with(R"("repeat_penalty":2)"))->sampling.repetition_penalty, 2);
}

// Results that do not say so answer the calls before them in their order.
TEST(OpenaiRead, NamesTheToolOfAResult) {
  const auto names = [](const std::string& results) -> std::string {
    const auto request = read_chat_request(
        R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[)"
        R"({"id":"c1","function":{"name":"f"}},{"id":"c2","function":{"name":"g"}}]})" +
        results + "]}");
    if (!request) return request.error().parameter;
    std::string shown;
    for (std::size_t i = 2; i < request->messages.size(); ++i) {
      shown += request->messages[i].name + " " + request->messages[i].tool_call_id + ";";
    }
    return shown;
  };
  const std::string bare = R"(,{"role":"tool","content":"r"})";
  EXPECT_EQ(names(bare + bare), "f c1;g c2;");
  EXPECT_EQ(names(R"(,{"role":"tool","content":"r","tool_call_id":"c2"})" + bare), "g c2;f c1;");
  EXPECT_EQ(names(R"(,{"role":"tool","content":"r","name":"g"})" + bare), "g c2;f c1;");
  EXPECT_EQ(names(bare + bare + bare), "messages[4].tool_call_id");
}

TEST(OpenaiRead, LeavesOutResultsWhoseCallsWereCutOff) {
  const std::string result = R"({"role":"tool","content":"r","tool_call_id":"c1"},)";
  const std::string user = R"({"role":"user","content":"q"})";
  const auto request = read_chat_request(R"({"messages":[)" + result + user + "]}");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  ASSERT_EQ(request->messages.size(), 1u);
  EXPECT_EQ(request->messages[0].content, "q");
  EXPECT_EQ(read_chat_request(R"({"messages":[)" + result + user + "," + result + user + "]}")
                .error()
                .parameter,
            "messages[2]");
}

// A field that would make another answer is done or refused, in chats and in completions.
TEST(OpenaiRead, RefusesByNameWhatItDoesNotDo) {
  const std::pair<const char*, const char*> kAsked[] = {{"structural_tag", "{\"a\":1}"},
                                                        {"bad_words", "[\"a\"]"},
                                                        {"dry_multiplier", "0.8"},
                                                        {"xtc_probability", "0.5"},
                                                        {"typical_p", "0.9"},
                                                        {"mirostat", "2"},
                                                        {"best_of", "2"},
                                                        {"truncate_prompt_tokens", "5"},
                                                        {"prompt_logprobs", "0"},
                                                        {"n_probs", "3"},
                                                        {"use_beam_search", "true"},
                                                        {"length_penalty", "2"},
                                                        {"include_stop_str_in_output", "true"},
                                                        {"no_stop_trim", "true"},
                                                        {"stop_regex", "\"a\""},
                                                        {"skip_special_tokens", "false"},
                                                        {"include_reasoning", "false"},
                                                        {"parse_tool_calls", "false"},
                                                        {"lora", "[{\"id\":0,\"scale\":1}]"},
                                                        {"reasoning_format", "\"none\""},
                                                        {"cache_salt", "\"\""},
                                                        {"cache_salt", "1"}};
  for (const auto& [name, value] : kAsked) {
    const std::string field = fmt::format("\"{}\":{}", name, value);
    EXPECT_EQ(read_chat_request(body_with(field)).error().parameter, name);
    const auto completion = read_completion_request("{\"prompt\":\"a\"," + field + "}");
    ASSERT_FALSE(completion.has_value()) << field;
    EXPECT_EQ(completion.error().parameter, name);
  }
  const std::pair<const char*, const char*> kOfChats[] = {{"echo", "true"},
                                                          {"add_special_tokens", "true"},
                                                          {"verbosity", "\"much\""},
                                                          {"modalities", "[\"text\",\"audio\"]"},
                                                          {"audio", "{\"voice\":\"a\"}"},
                                                          {"reasoning_effort", "\"much\""}};
  for (const auto& [name, value] : kOfChats) {
    const auto request = read_chat_request(body_with(fmt::format("\"{}\":{}", name, value)));
    ASSERT_FALSE(request.has_value()) << name;
    EXPECT_EQ(request.error().parameter, name);
  }
  for (const char* name : {"messages", "tools"}) {
    const auto request =
        read_completion_request(fmt::format(R"({{"prompt":"a","{}":[{{}}]}})", name));
    ASSERT_FALSE(request.has_value()) << name;
    EXPECT_EQ(request.error().parameter, name);
  }
  // These say nothing, as clients send them who send all that they have.
  for (
      const char* fields :
      {R"("grammar":null,"best_of":1,"typical_p":1.0,"mirostat":0,"echo":false,"bad_words":[])",
       R"("guided_json":"","structured_outputs":{},"modalities":["text"],"length_penalty":1)",
       R"("skip_special_tokens":true,"include_reasoning":true,"reasoning_format":"auto","lora":[])",
       R"("user":"u","metadata":{"a":1},"store":true,"service_tier":"auto","verbosity":"medium")"}) {
    const auto request = read_chat_request(body_with(fields));
    EXPECT_TRUE(request.has_value()) << request.error().message;
  }
}

TEST(OpenaiRead, TellsTheTemplateWhatItIsAskedTo) {
  const auto read = [](const char* fields) { return read_chat_request(body_with(fields)); };
  EXPECT_FALSE(read(R"("n":1)")->chat.enable_thinking.has_value());
  EXPECT_EQ(read(R"("reasoning_effort":"none")")->chat.enable_thinking, false);
  EXPECT_EQ(read(R"("reasoning_effort":"high")")->chat.enable_thinking, true);
  EXPECT_EQ(read(R"("enable_thinking":true)")->chat.enable_thinking, true);
  const auto more = read(R"("chat_template_kwargs":{"enable_thinking":false,"a":{"b":[1]}})");
  EXPECT_EQ(more->chat.enable_thinking, false);
  EXPECT_EQ(more->chat.arguments, R"({"a":{"b":[1]}})");
  const auto last = read(R"("continue_final_message":true)");
  EXPECT_TRUE(last->chat.continue_final_message);
  EXPECT_FALSE(last->chat.add_generation_prompt);
  EXPECT_EQ(read(R"("continue_final_message":true,"add_generation_prompt":true)").error().parameter,
            "continue_final_message");
  EXPECT_EQ(read(R"("chat_template_kwargs":{"messages":[]})").error().parameter,
            "chat_template_kwargs");
}

TEST(OpenaiRead, ReadsPromptsAsTextAndAsIds) {
  const auto read = [](const std::string& fields) {
    return read_completion_request(R"({"model":"m",)" + fields + "}");
  };
  for (const char* prompt : {R"("a")", R"(["a"])"}) {
    const auto request = read(fmt::format(R"("prompt":{})", prompt));
    ASSERT_TRUE(request.has_value()) << request.error().message;
    ASSERT_EQ(request->prompts.size(), 1u);
    EXPECT_EQ(request->prompts[0].text, "a");
    EXPECT_EQ(request->max_tokens, kDefaultCompletionTokens);
    EXPECT_FALSE(request->logprobs);
  }
  for (const char* prompt : {"[1,2]", "[[1,2]]"}) {
    const auto request = read(fmt::format(R"("prompt":{},"logprobs":0)", prompt));
    ASSERT_TRUE(request.has_value()) << request.error().message;
    ASSERT_EQ(request->prompts.size(), 1u);
    EXPECT_EQ(request->prompts[0].ids, (std::vector<TokenId>{1, 2}));
    EXPECT_TRUE(request->logprobs);
  }
  EXPECT_EQ(read(R"("prompt":["a","b"])")->prompts[1].text, "b");
  EXPECT_EQ(read(R"("prompt":[[1],[2]])")->prompts[1].ids, std::vector<TokenId>{2});
  EXPECT_FALSE(read(R"("prompt":"a","logprobs":false)")->logprobs);
  EXPECT_FALSE(read(R"("prompt":"a","add_special_tokens":false)")->add_special);
  EXPECT_EQ(read(R"("prompt":"a","echo":true,"max_tokens":0)")->max_tokens, 0);
  EXPECT_EQ(read(R"("prompt":"a","max_tokens":0)").error().parameter, "max_tokens");
  for (const char* prompt :
       {"[]", "7", "[[]]", "[-1]", "[1.5]", "[2147483648]", R"(["a",7])", "{}", "null"}) {
    const auto request = read(fmt::format(R"("prompt":{})", prompt));
    ASSERT_FALSE(request.has_value()) << prompt;
    EXPECT_EQ(request.error().parameter, "prompt") << prompt;
  }
  EXPECT_EQ(read(R"("prompt":["a","b"],"suffix":"c")")->prompts[1].suffix, "c");
  EXPECT_EQ(read(R"("prompt":"a","suffix":"")")->prompts[0].suffix, std::nullopt);
  for (const char* fields : {R"("prompt":"a","suffix":7)", R"("prompt":[1],"suffix":"b")",
                             R"("prompt":"a","suffix":"b","echo":true)"}) {
    EXPECT_EQ(read(fields).error().parameter, "suffix") << fields;
  }
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
      {"top_k", "-2"},
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
      {"tool_choice", "\"sometimes\",\"tools\":[{}]"},
      {"min_tokens", "-1"},
      {"min_tokens", "5,\"max_completion_tokens\":4"},
      {"stop_token_ids", "7"},
      {"allowed_token_ids", "[-1]"},
      {"allowed_token_ids", "[]"},
      {"priority", "\"high\""},
      {"model", "7"},
      {"functions", "[{}]"},
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
  EXPECT_EQ(message_of(nested(wire::kMostJsonDepth - 1)), "");  // in the body's object
  EXPECT_NE(message_of(nested(wire::kMostJsonDepth)).find("levels"), std::string::npos);
  EXPECT_NE(message_of(std::string(8 << 20, '[')).find("levels"), std::string::npos);
  std::string many = "\"x\":[0";
  for (std::size_t count = 0; count < wire::kMostJsonValues; ++count) many += ",0";
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
}  // namespace kakeya::openai
