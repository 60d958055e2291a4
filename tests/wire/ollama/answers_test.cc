// Ollama's API: what requests mean, which are refused, and answers whole and in lines.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/demo_sessions.h"
#include "service/grammar/grammar_engine.h"
#include "wire/http/http_client.h"
#include "wire/http/test_server.h"
#include "wire/ollama/answers_write.h"
#include "wire/ollama/requests_read.h"

namespace kakeya::ollama {
namespace {

using nlohmann::json;
constexpr std::int64_t kContext = 4096;

std::string body_of(const std::string& fields) {
  return fmt::format(R"({{"model":"demo:latest","messages":[{{"role":"user","content":"a"}}]{}}})",
                     fields.empty() ? "" : "," + fields);
}

TEST(OllamaRead, ReadsEveryField) {
  const auto request = read_chat(
      body_of(
          R"("stream":false,"think":"high","format":{"type":"object","properties":{"b":{},"a":{}}},)"
          R"("keep_alive":"5m","tools":[{"type":"function","function":{"name":"f","b":1,"a":2}}],)"
          R"("options":{"temperature":0.5,"top_k":3,"top_p":0.25,"min_p":0.1,"seed":7,"num_predict":9,)"
          R"("stop":["x",""],"repeat_penalty":1.5,"presence_penalty":1,"frequency_penalty":-1,)"
          R"("num_ctx":2048,"num_gpu":1,"use_mmap":true,"mirostat":0,"typical_p":1.0})"),
      kContext);
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->model, "demo");
  EXPECT_FALSE(request->stream);
  EXPECT_EQ(request->chat.enable_thinking, true);
  EXPECT_EQ(request->chat.arguments, R"({"reasoning_effort":"high"})");
  EXPECT_EQ(request->format.text, R"({"type":"object","properties":{"b":{},"a":{}}})");
  EXPECT_EQ(request->chat.tools,
            std::vector<std::string>{R"({"type":"function","function":{"name":"f","b":1,"a":2}})"});
  EXPECT_EQ(request->sampling.temperature, 0.5F);
  EXPECT_EQ(request->sampling.top_k, 3);
  EXPECT_EQ(request->sampling.seed, 7u);
  EXPECT_EQ(request->sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(request->max_tokens, 9);
  EXPECT_EQ(request->stop_strings, std::vector<std::string>{"x"});
  EXPECT_TRUE(read_chat(body_of(""), kContext)->stream);
  EXPECT_FALSE(read_chat(body_of(R"("options":{"num_predict":-1})"), kContext)->max_tokens);
}

TEST(OllamaRead, ReadsCallsAndResults) {
  const auto request = read_chat(
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"","thinking":"t",)"
      R"("tool_calls":[{"function":{"name":"f","arguments":{"b":1,"a":[2]}}}]},)"
      R"({"role":"tool","tool_name":"f","content":"r"}]})",
      kContext);
  ASSERT_TRUE(request) << request.error().message;
  ASSERT_EQ(request->messages.size(), 3u);
  EXPECT_EQ(request->messages[1].reasoning, "t");
  ASSERT_EQ(request->messages[1].tool_calls.size(), 1u);
  EXPECT_EQ(request->messages[1].tool_calls[0].arguments, R"({"b":1,"a":[2]})");
  EXPECT_EQ(request->messages[2].name, "f");
}

TEST(OllamaRead, NamesTheToolOfAResult) {
  const auto read = [](const std::string& results) {
    return read_chat(
        R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"","tool_calls":[)"
        R"({"id":"c1","function":{"name":"f"}},{"id":"c2","function":{"name":"g"}}]})" +
            results + "]}",
        kContext);
  };
  const auto names = [&](const std::string& results) {
    const auto request = read(results);
    EXPECT_TRUE(request) << request.error().message;
    std::string shown;
    for (std::size_t i = 2; request && i < request->messages.size(); ++i) {
      shown += request->messages[i].name + " " + request->messages[i].tool_call_id + ";";
    }
    return shown;
  };
  const std::string bare = R"(,{"role":"tool","content":"r"})";
  EXPECT_EQ(names(bare + bare), "f c1;g c2;");
  EXPECT_EQ(names(R"(,{"role":"tool","content":"r","tool_call_id":"c2"})" + bare), "g c2;f c1;");
  EXPECT_EQ(names(R"(,{"role":"tool","content":"r","tool_name":"g"})" + bare), "g c2;f c1;");
  EXPECT_EQ(names(R"(,{"role":"tool","content":"r","tool_name":"other"})"), "other ;");
  EXPECT_EQ(read(bare + bare + bare).error().parameter, "messages[4].tool_name");
  EXPECT_EQ(read(R"(,{"role":"tool","content":"r","tool_call_id":"c3"})").error().parameter,
            "messages[2].tool_call_id");
}

// Home Assistant keeps the last messages by their number, whatever they are.
TEST(OllamaRead, LeavesOutResultsWhoseCallsWereCutOff) {
  const auto read = [](const std::string& messages) {
    return read_chat(R"({"messages":[)" + messages + "]}", kContext);
  };
  const std::string system = R"({"role":"system","content":"s"},)";
  const std::string result = R"({"role":"tool","content":"r"},)";
  const std::string user = R"({"role":"user","content":"q"})";
  const auto request = read(system + result + result + user);
  ASSERT_TRUE(request) << request.error().message;
  ASSERT_EQ(request->messages.size(), 2u);
  EXPECT_EQ(request->messages[0].role, "system");
  EXPECT_EQ(request->messages[1].content, "q");
  // A tool's name says enough.
  EXPECT_EQ(read(R"({"role":"tool","content":"r","tool_name":"f"},)" + user)->messages.size(), 2u);
  // Elsewhere a result without a call is a mistake, which keeps its place.
  EXPECT_EQ(read(system + result + user + "," + result + user).error().parameter,
            "messages[3].tool_name");
}

TEST(OllamaRead, RefusesByName) {
  const std::pair<const char*, const char*> refused[] = {
      {R"("options":{"mirostat":2})", "options.mirostat"},
      {R"("options":{"speed":2})", "options.speed"},
      {R"("options":{"temperature":"hot"})", "temperature"},
      {R"("options":{"num_ctx":100000})", "num_ctx"},
      {R"("options":{"num_predict":0})", "num_predict"},
      {R"("options":7)", "options"},
      {R"("format":"yaml")", "format"},
      {R"("think":"a lot")", "think"},
      {R"("tools":[{"name":"f"}])", "tools[0]"},
      {R"("logprobs":true)", "logprobs"},
      {R"("template":"x")", "template"},
      {R"("images":["x"])", "images"},
      {R"("temperature":0)", "temperature"},
      {R"("stop":["a"])", "stop"},
      {R"("max_tokens":3)", "max_tokens"},
      {R"("response_format":{"type":"json_object"})", "response_format"},
      {R"("messages":5)", "messages"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("reasoning_effort":"high")", "reasoning_effort"},
      {R"("n":2)", "n"},
      {R"("messages":[{"role":"user","content":"a","images":["x"]}])", "images"},
      {R"("messages":[{"role":"robot","content":"a"}])", "messages[0].role"},
      {R"("messages":[{"role":"tool","content":"a"}])", "messages[0].tool_name"},
      {R"("messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"x"}}]}])",
       "messages[0].tool_calls"}};
  for (const auto& [fields, parameter] : refused) {
    const auto request = read_chat(body_of(fields), kContext);
    ASSERT_FALSE(request) << fields;
    EXPECT_EQ(request.error().parameter, parameter) << request.error().message;
  }
  // Fields for what happens anyhow, or that do nothing.
  for (const char* const fields :
       {R"("truncate":true)", R"("options":{"mirostat":0,"mirostat_eta":0.1,"mirostat_tau":5})",
        R"("tool_choice":"auto","n":1)", R"("messages":[])"}) {
    EXPECT_TRUE(read_chat(body_of(fields), kContext)) << fields;
  }
  for (const char* const fields :
       {R"("suffix":1)", R"("suffix":"x","system":"x")", R"("template":"x")", R"("context":[1])",
        R"("raw":true,"system":"x")"}) {
    EXPECT_FALSE(read_generate(fmt::format(R"({{"prompt":"a",{}}})", fields), kContext)) << fields;
  }
}

TEST(OllamaWrite, LinesAddUpToTheWhole) {
  service::WholeAnswer answer;
  answer.piece.reasoning = "hm";
  answer.piece.text = "Before.{\"cut";
  answer.piece.tool_calls = {{.id = "1", .name = "f", .arguments = R"({"a":1})", .at = 7}};
  answer.end = {.reason = service::FinishReason::kToolCalls};
  const service::Usage usage = {.prompt_tokens = 3, .completion_tokens = 5};
  const json whole = json::parse(AnswersWriter("m", true).whole({answer}, usage));
  EXPECT_EQ(whole["message"]["content"], answer.piece.text);
  EXPECT_EQ(whole["message"]["thinking"], "hm");
  EXPECT_EQ(whole["done_reason"], "stop");
  EXPECT_EQ(whole["eval_count"], 5);
  AnswersWriter writer("m", true);
  std::string lines = writer.piece(0, {.text = "", .reasoning = "hm", .tokens = {}});
  lines += writer.piece(0, {.text = "Before.", .tokens = {}});
  service::AnswerPiece begun;
  begun.tool_calls = {{.id = "1", .name = "f", .arguments = "{\"a\"", .at = 0}};
  lines += writer.piece(0, begun);
  service::AnswerPiece rest;
  rest.tool_calls = {{.arguments = ":1}"}};
  rest.text = "{\"cut";
  lines += writer.piece(0, rest);
  lines += writer.end(0, answer.end);
  lines += writer.done(usage);
  std::string text;
  json calls;
  json last;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    last = json::parse(line);
    text += last["message"]["content"].get<std::string>();
    if (last["message"].contains("tool_calls")) calls = last["message"]["tool_calls"];
  }
  EXPECT_EQ(text, answer.piece.text);
  EXPECT_EQ(calls, whole["message"]["tool_calls"]);
  EXPECT_EQ(calls[0]["function"]["arguments"], json({{"a", 1}}));
  EXPECT_EQ(last["done"], true);
}

class OllamaOverHttp : public testing::Test {
 protected:
  std::string send(test::http::verb verb,
                   const std::string& path,
                   const json& body,
                   unsigned status = 200) {
    test::HttpClient client(server_.port());
    client.send({}, verb, path, body.is_null() ? "" : body.dump());
    const auto response = client.receive();
    EXPECT_EQ(response.result_int(), status) << response.body();
    type_ = std::string(response["Content-Type"]);
    return response.body();
  }
  json post(const std::string& path, const json& body, unsigned status = 200) {
    return json::parse(send(test::http::verb::post, path, body, status));
  }

  std::shared_ptr<Engine> engine_ = test::open_engine(test::demo_options("none"));
  test::TestServer server_{*engine_, service::ServiceOptions()};
  std::string type_;
};

TEST_F(OllamaOverHttp, AnswersWholeAndInLines) {
  const json question = {{"role", "user"}, {"content", "Count from 5 to 12."}};
  const json fields = {{"model", "demo:latest"},
                       {"messages", json::array({question})},
                       {"options", {{"temperature", 0}}}};
  json whole = fields;
  whole["stream"] = false;
  const json answer = post("/api/chat", whole);
  EXPECT_EQ(answer["message"]["content"], "5, 6, 7, 8, 9, 10, 11, 12.");
  EXPECT_EQ(answer["done_reason"], "stop");
  EXPECT_GT(answer["prompt_eval_count"], 0);
  std::istringstream lines(send(test::http::verb::post, "/api/chat", fields));
  EXPECT_EQ(type_, "application/x-ndjson");
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    text += json::parse(line)["message"]["content"].get<std::string>();
  }
  EXPECT_EQ(text, answer["message"]["content"]);
  json prompt = {
      {"prompt", "Count from 5 to 12."}, {"stream", false}, {"options", {{"temperature", 0}}}};
  EXPECT_EQ(post("/api/generate", prompt)["response"], answer["message"]["content"]);
  prompt["raw"] = true;
  prompt["prompt"] = "Once upon a time";
  prompt["options"]["num_predict"] = 3;
  EXPECT_EQ(post("/api/generate", prompt)["done_reason"], "length");
  EXPECT_EQ(post("/api/generate", {{"model", "demo"}})["done_reason"], "load");
  EXPECT_EQ(post("/api/chat", {{"model", "demo"}, {"messages", json::array()}})["done_reason"],
            "load");
}

// Clients divide by durations, and read members of the model without asking whether they are there.
TEST_F(OllamaOverHttp, TellsWhatItsClientsRead) {
  const json answer = post("/api/generate", {{"prompt", "Count from 5 to 12."}, {"stream", false}});
  for (const char* const name : {"total_duration", "prompt_eval_duration", "eval_duration"}) {
    EXPECT_GT(answer.value(name, 0), 0) << name;
  }
  EXPECT_EQ(answer["load_duration"], 0);
  EXPECT_LE(answer["prompt_eval_duration"].get<std::int64_t>() +
                answer["eval_duration"].get<std::int64_t>(),
            answer["total_duration"].get<std::int64_t>() + 1);
  const auto get = [this](const char* path) {
    return json::parse(send(test::http::verb::get, path, json()))["models"][0];
  };
  for (const char* const path : {"/api/tags", "/api/ps"}) {
    const json model = get(path);
    EXPECT_EQ(model["digest"], engine_->model_fingerprint());
    EXPECT_TRUE(model["details"]["families"].is_array()) << model;
    EXPECT_TRUE(model["modified_at"].is_string()) << model;
  }
  EXPECT_GT(get("/api/ps")["expires_at"].get<std::string>(), "2100");
  const json shown = post("/api/show", {{"model", "demo"}});
  const std::string family = shown["model_info"]["general.architecture"];
  EXPECT_GT(shown["model_info"][family + ".context_length"], 0);
  // A path that is not there is refused as this API refuses.
  EXPECT_TRUE(
      json::parse(send(test::http::verb::get, "/api/nothing", json(), 404))["error"].is_string());
}

// As `curl -d` sends it, and documents of Ollama show it, but not as a page of another site could.
TEST_F(OllamaOverHttp, TakesABodyWithoutAType) {
  const json body = {{"model", "demo"}, {"prompt", "a"}, {"stream", false}};
  const auto status = [&](const char* type, const char* origin) {
    test::http::fields fields;
    if (*type != '\0') fields.set(test::http::field::content_type, type);
    if (*origin != '\0') fields.set(test::http::field::origin, origin);
    test::HttpClient sender(server_.port());
    sender.send(fields, test::http::verb::post, "/api/generate", body.dump());
    return sender.receive().result_int();
  };
  EXPECT_EQ(status("application/x-www-form-urlencoded", ""), 200U);
  EXPECT_EQ(status("text/plain", ""), 200U);
  EXPECT_EQ(status("text/plain", "http://example.com"), 415U);
}

TEST_F(OllamaOverHttp, HoldsAnswersToTheirFormat) {
  if (!service::has_grammars()) GTEST_SKIP() << "built without xgrammar";
  const json schema =
      json::parse(R"({"type":"object","required":["n"],"properties":{"n":{"enum":[1,2]}}})");
  const json answer =
      post("/api/generate", {{"prompt", "a"}, {"format", schema}, {"stream", false}});
  const json value = json::parse(answer["response"].get<std::string>());
  EXPECT_TRUE(value["n"] == 1 || value["n"] == 2) << value;
}

TEST_F(OllamaOverHttp, EmbedsTexts) {
  const auto vector_of = [&](const std::string& text) {
    return engine_->embed(engine_->encode_text(text).value()).value();
  };
  const json several = post("/api/embed", {{"model", "demo"}, {"input", {"a cat", "a dog"}}});
  ASSERT_EQ(several["embeddings"].size(), 2u);
  EXPECT_EQ(several["embeddings"][1].get<std::vector<float>>(), vector_of("a dog"));
  EXPECT_EQ(several["prompt_eval_count"], engine_->encode_text("a cat").value().size() +
                                              engine_->encode_text("a dog").value().size());
  const json one = post("/api/embed", {{"model", "demo"},
                                       {"input", "a cat"},
                                       {"truncate", true},
                                       {"keep_alive", "5m"},
                                       {"dimensions", engine_->hidden_size()}});
  EXPECT_EQ(one["embeddings"][0], several["embeddings"][0]);
  const json before = post("/api/embeddings", {{"model", "demo"}, {"prompt", "a cat"}});
  EXPECT_EQ(before["embedding"], several["embeddings"][0]);
  post("/api/embed", {{"model", "other"}, {"input", "a"}}, 404);
  for (const json& wrong : {json::object(), json{{"input", json::array()}}, json{{"input", {1, 2}}},
                            json{{"input", "a"}, {"dimensions", 3}},
                            json{{"input", "a"}, {"options", {{"mirostat", 2}}}}}) {
    EXPECT_NE(post("/api/embed", wrong, 400)["error"].get<std::string>().find("expected"),
              std::string::npos)
        << wrong;
  }
  post("/api/embeddings", {{"model", "demo"}}, 400);
}

TEST_F(OllamaOverHttp, SaysWhatIsThere) {
  using test::http::verb;
  EXPECT_EQ(json::parse(send(verb::get, "/api/tags", nullptr))["models"][0]["name"], "demo");
  EXPECT_EQ(json::parse(send(verb::get, "/api/ps", nullptr))["models"][0]["model"], "demo");
  EXPECT_TRUE(json::parse(send(verb::get, "/api/version", nullptr))["version"].is_string());
  const json shown = post("/api/show", {{"model", "demo:latest"}});
  EXPECT_EQ(shown["capabilities"], json({"completion", "tools", "thinking"}));
  EXPECT_TRUE(post("/api/show", {{"model", "other"}}, 404)["error"].is_string());
  EXPECT_TRUE(
      post("/api/chat",
           {{"model", "other"}, {"messages", json::array({{{"role", "user"}, {"content", "a"}}})}},
           404)["error"]
          .is_string());
  post("/api/show", json::object(), 400);
}

}  // namespace
}  // namespace kakeya::ollama
