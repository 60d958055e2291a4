// Responses over a loopback: the answers are those of the chat completions, and conversations go on
// from responses that are stored.
#include <gmock/gmock.h>

#include <cstring>
#include <fstream>
#include <regex>

#include "runtime/demo_sessions.h"
#include "wire/http/http_client.h"
#include "wire/http/keys.h"
#include "wire/http/scripted_scheduler.h"
#include "wire/http/test_server.h"
#include "wire/openai/responses_events.h"

namespace kakeya::openai {
namespace {

using nlohmann::json;
using test::HttpClient;
using test::http::verb;

constexpr const char* kQuestion = "Count from 5 to 12.";
constexpr const char* kAnswer = "5, 6, 7, 8, 9, 10, 11, 12.";

class Responses : public testing::Test {
 protected:
  std::string send(verb verb,
                   const std::string& path,
                   const json& body,
                   unsigned status,
                   const std::string& key = "") {
    HttpClient client(server_->port());
    test::HttpResponse::fields_type fields;
    if (!key.empty()) fields.set(test::http::field::authorization, "Bearer " + key);
    client.send(fields, verb, path, body.is_null() ? "" : body.dump());
    const auto response = client.receive();
    EXPECT_EQ(response.result_int(), status) << path << " " << response.body();
    return response.body();
  }
  json post(const json& body, unsigned status = 200, const std::string& key = "") {
    return json::parse(send(verb::post, "/v1/responses", body, status, key));
  }
  json get(const std::string& id, unsigned status = 200, const std::string& key = "") {
    return json::parse(send(verb::get, "/v1/responses/" + id, nullptr, status, key));
  }
  json erase(const std::string& id, unsigned status = 200, const std::string& key = "") {
    return json::parse(send(verb::delete_, "/v1/responses/" + id, nullptr, status, key));
  }
  json chat(const json& body) {
    return json::parse(send(verb::post, "/v1/chat/completions", body, 200));
  }
  std::string stream(json body) {
    body["stream"] = true;
    return send(verb::post, "/v1/responses", body, 200);
  }

  static json request(const json& more = json::object()) {
    json body = {{"model", "demo"}, {"temperature", 0}, {"input", kQuestion}};
    body.update(more);
    return body;
  }
  static std::string text_of(const json& response) {
    return response["output"].back()["content"][0]["text"];
  }

  void start(const wire::HttpOptions& http = {},
             std::unique_ptr<Scheduler> scheduler = nullptr,
             const std::string& replica = "") {
    server_.reset();
    service::ServiceOptions options;
    options.sessions.replica_name = replica;
    server_ = std::make_unique<test::TestServer>(*engine_, options, http, std::move(scheduler));
  }

  // A server that answers everything so; what it is asked can be looked at.
  test::ScriptedScheduler& start_script(const std::string& answer) {
    const auto ids = engine_->tokenizer().value()->encode(answer).value();
    auto scheduler = std::make_unique<test::ScriptedScheduler>(ids);
    test::ScriptedScheduler& script = *scheduler;
    start({}, std::move(scheduler));
    return script;
  }

  std::shared_ptr<Engine> engine_ = test::open_engine(test::demo_options("none"));
  std::unique_ptr<test::TestServer> server_;
};

TEST_F(Responses, AreThoseOfChatCompletions) {
  start();
  const json response = post(request({{"instructions", "Be brief."}}));
  const json expected =
      chat({{"temperature", 0},
            {"messages", json::array({{{"role", "system"}, {"content", "Be brief."}},
                                      {{"role", "user"}, {"content", kQuestion}}})}});
  EXPECT_EQ(text_of(response), expected["choices"][0]["message"]["content"]);
  EXPECT_EQ(response["usage"]["input_tokens"], expected["usage"]["prompt_tokens"]);
  EXPECT_EQ(response["usage"]["output_tokens"], expected["usage"]["completion_tokens"]);
  EXPECT_EQ(response["object"], "response");
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["model"], "demo");
  EXPECT_EQ(response["instructions"], "Be brief.");
  EXPECT_THAT(response["id"].get<std::string>(), testing::StartsWith("resp_"));
  const json cut = post(request({{"max_output_tokens", 3}}));
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(cut["usage"]["output_tokens"], 3);
}

TEST_F(Responses, StreamTheSame) {
  start();
  json whole = post(request());
  EXPECT_EQ(text_of(whole), kAnswer);
  json streamed = test::added_up(test::response_events(stream(request())));
  EXPECT_EQ(get(streamed["id"]), streamed);
  for (json* response : {&whole, &streamed}) {
    for (const char* const name : {"id", "created_at", "usage"}) response->erase(name);
    (*response)["output"][0].erase("id");
  }
  EXPECT_EQ(streamed, whole);
}

TEST_F(Responses, HaveTheLogProbabilitiesOfChats) {
  start();
  const json expected = chat({{"temperature", 0},
                              {"logprobs", true},
                              {"top_logprobs", 2},
                              {"messages", {{{"role", "user"}, {"content", kQuestion}}}}});
  const json wish = request({{"include", {"message.output_text.logprobs"}}, {"top_logprobs", 2}});
  const json response = post(wish);
  const json part = response["output"][0]["content"][0];
  EXPECT_EQ(part["logprobs"], expected["choices"][0]["logprobs"]["content"]);
  EXPECT_EQ(part["logprobs"][0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(response["top_logprobs"], 2);
  const json streamed = test::added_up(test::response_events(stream(wish)));
  EXPECT_EQ(streamed["output"][0]["content"][0], part);
  const json alone = post(request({{"include", {"message.output_text.logprobs"}}}));
  EXPECT_EQ(alone["output"][0]["content"][0]["logprobs"].size(), part["logprobs"].size());
  EXPECT_TRUE(alone["output"][0]["content"][0]["logprobs"][0]["top_logprobs"].empty());
}

TEST_F(Responses, AreKeptUntilTheyAreDeleted) {
  start();
  const json response = post(request({{"metadata", {{"k", "v"}}}}));
  const std::string id = response["id"];
  EXPECT_EQ(get(id), response);
  EXPECT_EQ(response["metadata"]["k"], "v");
  EXPECT_EQ(get(id + "?stream=true", 400)["error"]["param"], "stream");
  EXPECT_EQ(erase(id), (json{{"id", id}, {"object", "response"}, {"deleted", true}}));
  EXPECT_EQ(get(id, 404)["error"]["code"], "response_not_found");
  EXPECT_EQ(erase(id, 404)["error"]["code"], "response_not_found");
  EXPECT_EQ(post(request({{"previous_response_id", id}}), 404)["error"]["code"],
            "previous_response_not_found");
  const json unkept = post(request({{"store", false}}));
  EXPECT_EQ(unkept["store"], false);
  get(unkept["id"], 404);
  // Allow has all verbs of the path.
  HttpClient client(server_->port());
  client.send({}, verb::options, "/v1/responses/" + id);
  EXPECT_EQ(client.receive()["Allow"], "GET, HEAD, DELETE, OPTIONS");
  EXPECT_EQ(
      json::parse(send(verb::post, "/v1/responses/" + id, json::object(), 405))["error"]["message"],
      "expected GET, HEAD, DELETE, OPTIONS, got 'POST'");
  send(verb::delete_, "/v1/responses", nullptr, 405);
}

TEST_F(Responses, SayWhichReplicaMadeThem) {
  start({}, nullptr, "replica-1");
  const json first = post(request());
  const std::string id = first["id"];
  EXPECT_THAT(id, testing::MatchesRegex("resp_replica-1_[0-9a-f]{32}"));
  EXPECT_EQ(get(id), first);
  EXPECT_EQ(get(id + "/input_items")["data"].size(), 1U);
  const json reference = {{"type", "item_reference"}, {"id", first["output"][0]["id"]}};
  post(request({{"input", {reference, {{"role", "user"}, {"content", "And on."}}}}}));
  EXPECT_THAT(post(request({{"previous_response_id", id}}))["id"].get<std::string>(),
              testing::StartsWith("resp_replica-1_"));
  start({}, nullptr, "replica-2");
  EXPECT_THAT(get(id, 404)["error"]["message"].get<std::string>(),
              testing::EndsWith(", made by replica 'replica-1'"));
  const json error = post(request({{"previous_response_id", id}}), 404)["error"];
  EXPECT_THAT(error["message"].get<std::string>(),
              testing::EndsWith(", made by replica 'replica-1'"));
}

TEST_F(Responses, ListWhatTheyWereAsked) {
  start();
  const json first = post(request({{"instructions", "Be brief."}}));
  const json items = get(first["id"].get<std::string>() + "/input_items");
  ASSERT_EQ(items["data"].size(), 1U);
  EXPECT_EQ(items["data"][0]["role"], "user");
  EXPECT_EQ(items["data"][0]["content"][0], (json{{"type", "input_text"}, {"text", kQuestion}}));
  EXPECT_EQ(items["has_more"], false);
  const json again = json::array({{{"role", "user"}, {"content", "a"}},
                                  {{"role", "assistant"}, {"content", "b"}},
                                  {{"role", "user"}, {"content", "c"}}});
  const json second = post(
      request({{"input", again}, {"previous_response_id", first["id"]}, {"max_output_tokens", 2}}));
  const std::string path = second["id"].get<std::string>() + "/input_items";
  const json latest = get(path + "?limit=2");
  ASSERT_EQ(latest["data"].size(), 2U);
  EXPECT_EQ(latest["data"][0]["content"][0]["text"], "c");
  EXPECT_EQ(latest["data"][1]["content"][0]["type"], "output_text");
  EXPECT_EQ(latest["has_more"], true);
  const json rest = get(path + "?limit=2&after=" + latest["last_id"].get<std::string>());
  ASSERT_EQ(rest["data"].size(), 1U);
  EXPECT_EQ(rest["data"][0]["content"][0]["text"], "a");
  EXPECT_EQ(rest["has_more"], false);
  EXPECT_EQ(get(path + "?order=asc")["data"][0], rest["data"][0]);
  for (const char* wrong :
       {"limit=0", "limit=101", "limit=x", "order=up", "after=none", "before=x"}) {
    const std::string name(wrong, std::strchr(wrong, '='));
    EXPECT_EQ(get(path + "?" + wrong, 400)["error"]["param"], name) << wrong;
  }
  get("resp_none/input_items", 404);
}

TEST_F(Responses, BelongToTheirKeys) {
  const wire::NewKey ann = wire::make_key("ann").value();
  const wire::NewKey bob = wire::make_key("bob").value();
  const std::string path = testing::TempDir() + "responses_over_http_keys";
  std::ofstream(path) << ann.line << "\n" << bob.line << "\n";
  start({.keys_file = path});
  const std::string id = post(request(), 200, ann.key)["id"];
  get(id, 200, ann.key);
  get(id, 401);
  get(id, 404, bob.key);
  erase(id, 404, bob.key);
  post(request({{"previous_response_id", id}}), 404, bob.key);
  const json item = get(id, 200, ann.key)["output"][0]["id"];
  const json reference = json::array(
      {{{"type", "item_reference"}, {"id", item}}, {{"role", "user"}, {"content", "a"}}});
  post(request({{"input", reference}}), 400, bob.key);
  post(request({{"input", reference}}), 200, ann.key);
  post(request({{"previous_response_id", id}}), 200, ann.key);
  erase(id, 200, ann.key);
}

TEST_F(Responses, TellHowManyTokensTheirInputHas) {
  start();
  const json first = post(request());
  const auto count = [&](const json& body, unsigned status = 200) {
    return json::parse(send(verb::post, "/v1/responses/input_tokens", body, status));
  };
  EXPECT_EQ(count(request()), (json{{"object", "response.input_tokens"},
                                    {"input_tokens", first["usage"]["input_tokens"]}}));
  const json next = request({{"input", "Go on."}, {"previous_response_id", first["id"]}});
  EXPECT_EQ(count(next)["input_tokens"], post(next)["usage"]["input_tokens"]);
  EXPECT_EQ(count(request({{"model", "other"}}), 404)["error"]["code"], "model_not_found");
}

TEST_F(Responses, GoOnAsAChatOfTheSameMessages) {
  const test::ScriptedScheduler& script = start_script("yes<turn|>");
  const json first = post(request({{"instructions", "Be brief."}, {"input", "a"}}));
  const json second = post(request(
      {{"instructions", "Be kind."}, {"input", "b"}, {"previous_response_id", first["id"]}}));
  EXPECT_EQ(second["previous_response_id"], first["id"]);
  post(request({{"input", "c"}, {"previous_response_id", second["id"]}}));
  json messages = json::array({{{"role", "user"}, {"content", "a"}},
                               {{"role", "assistant"}, {"content", "yes"}},
                               {{"role", "user"}, {"content", "b"}}});
  json kind = messages;
  const json system = {{"role", "system"}, {"content", "Be kind."}};
  kind.insert(kind.begin(), system);
  chat({{"messages", kind}});
  messages.push_back({{"role", "assistant"}, {"content", "yes"}});
  messages.push_back({{"role", "user"}, {"content", "c"}});
  chat({{"messages", messages}});
  // So does a client that keeps the conversation itself, with the items as it got them.
  json items = json::array({{{"role", "user"}, {"content", "a"}}});
  items.push_back(first["output"][0]);
  items.push_back({{"role", "user"}, {"content", "b"}});
  post(request({{"input", items}, {"instructions", "Be kind."}}));
  const auto prompts = script.prompts();
  ASSERT_EQ(prompts.size(), 6u);
  EXPECT_EQ(prompts[1], prompts[3]);
  EXPECT_EQ(prompts[2], prompts[4]);
  EXPECT_EQ(prompts[5], prompts[3]);
}

TEST_F(Responses, CallToolsAndTakeTheirResults) {
  const test::ScriptedScheduler& script = start_script(
      "Let me see.<|tool_call>call:weather{place:<|\"|>Bern<|\"|>,days:2}<tool_call|><turn|>");
  const json parameters = json::parse(
      R"({"type":"object","properties":{"place":{"type":"string"},"days":{"type":"integer"}}})");
  const json tools = json::array(
      {{{"type", "function"}, {"name", "weather"}, {"parameters", parameters}, {"strict", true}}});
  const json asked = post(request({{"input", "a"}, {"tools", tools}}));
  EXPECT_EQ(asked["tools"], tools);
  ASSERT_EQ(asked["output"].size(), 2u);
  EXPECT_EQ(asked["output"][0]["content"][0]["text"], "Let me see.");
  const json& call = asked["output"][1];
  EXPECT_EQ(call["type"], "function_call");
  EXPECT_EQ(call["name"], "weather");
  EXPECT_EQ(call["arguments"], R"({"place":"Bern","days":2})");
  EXPECT_EQ(asked["status"], "completed");
  const json streamed =
      test::added_up(test::response_events(stream(request({{"input", "a"}, {"tools", tools}}))));
  EXPECT_EQ(streamed["output"][1]["arguments"], call["arguments"]);
  // The result, to a response that is stored and to the items themselves.
  const json result = {
      {"type", "function_call_output"}, {"call_id", call["call_id"]}, {"output", "rain"}};
  post(request(
      {{"previous_response_id", asked["id"]}, {"tools", tools}, {"input", json::array({result})}}));
  json items = json::array({{{"role", "user"}, {"content", "a"}}});
  for (const json& item : asked["output"]) items.push_back(item);
  items.push_back(result);
  post(request({{"tools", tools}, {"input", items}}));
  json function = tools[0];
  function.erase("type");
  const json called = {{"id", call["call_id"]},
                       {"type", "function"},
                       {"function", {{"name", "weather"}, {"arguments", call["arguments"]}}}};
  chat({{"tools", json::array({{{"type", "function"}, {"function", function}}})},
        {"messages",
         json::array(
             {{{"role", "user"}, {"content", "a"}},
              {{"role", "assistant"},
               {"content", "Let me see."},
               {"tool_calls", json::array({called})}},
              {{"role", "tool"}, {"tool_call_id", call["call_id"]}, {"content", "rain"}}})}});
  const auto prompts = script.prompts();
  ASSERT_EQ(prompts.size(), 5u);
  EXPECT_EQ(prompts[2], prompts[4]);
  EXPECT_EQ(prompts[3], prompts[4]);
  EXPECT_EQ(post(request({{"previous_response_id", asked["id"]},
                          {"input", json::array({{{"type", "function_call_output"},
                                                  {"call_id", "call_other"},
                                                  {"output", "rain"}}})}}),
                 400)["error"]["param"],
            "input[0].call_id");
}

TEST_F(Responses, RefuseInOpenAisForm) {
  start();
  const json refused = post(request({{"tools", json::array({{{"type", "web_search"}}})}}), 400);
  EXPECT_EQ(refused["error"]["type"], "invalid_request_error");
  EXPECT_EQ(refused["error"]["param"], "tools[0].type");
  EXPECT_EQ(post(request({{"model", "other"}}), 404)["error"]["code"], "model_not_found");
}

}  // namespace
}  // namespace kakeya::openai
