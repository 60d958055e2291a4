// Forms of answers over HTTP: every way to ask, answers that keep to them, also with drafts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/demo_sessions.h"
#include "service/grammar/grammar_engine.h"
#include "wire/http/http_client.h"
#include "wire/http/test_server.h"
#include "wire/openai/completion_read.h"

namespace kakeya::openai {
namespace {

using nlohmann::json;
using Kind = service::AnswerFormat::Kind;

service::Outcome<service::AnswerRequest> read(const std::string& fields) {
  return read_chat_request(
      fmt::format(R"({{"messages":[{{"role":"user","content":"a"}}],{}}})", fields));
}

TEST(AnswerFormats, AreReadInEverySpelling) {
  const std::string schema = R"({"type":"object","properties":{"b":{},"a":{}}})";
  const std::tuple<std::string, Kind, std::string> spellings[] = {
      {R"("response_format":{"type":"text"})", Kind::kFree, ""},
      {R"("response_format":{"type":"json_object"})", Kind::kJsonObject, ""},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":)" +
           schema + "}}",
       Kind::kJsonSchema, schema},
      {R"("response_format":{"type":"json_object","schema":)" + schema + "}", Kind::kJsonSchema,
       schema},
      {R"("structured_outputs":{"json":)" + schema + "}", Kind::kJsonSchema, schema},
      {R"("structured_outputs":{"regex":"a+","json":null})", Kind::kRegex, "a+"},
      {R"("guided_json":)" + schema, Kind::kJsonSchema, schema},
      {R"("guided_json":"{}")", Kind::kJsonSchema, "{}"},
      {R"("guided_json_object":true)", Kind::kJsonObject, ""},
      {R"("guided_regex":"[ab]")", Kind::kRegex, "[ab]"},
      {R"("guided_grammar":"root ::= \"x\"")", Kind::kGrammar, "root ::= \"x\""},
      {R"("grammar":"root ::= \"x\"")", Kind::kGrammar, "root ::= \"x\""},
      {R"("json_schema":)" + schema, Kind::kJsonSchema, schema},
      {R"("ebnf":"root ::= \"x\"")", Kind::kGrammar, "root ::= \"x\""},
      {R"("regex":"x")", Kind::kRegex, "x"},
      {R"("guided_choice":["a","b"])", Kind::kChoice, ""},
      {R"("grammar":"","guided_json":null,"structured_outputs":{})", Kind::kFree, ""}};
  for (const auto& [fields, kind, text] : spellings) {
    const auto request = read(fields);
    ASSERT_TRUE(request) << fields << " " << request.error().message;
    EXPECT_EQ(request->format.kind, kind) << fields;
    EXPECT_EQ(request->format.text, text) << fields;
  }
  EXPECT_EQ(read(R"("guided_choice":["a","b"])")->format.choices,
            (std::vector<std::string>{"a", "b"}));
}

TEST(AnswerFormats, RefusesWhatIsNoForm) {
  const std::pair<std::string, std::string> wrong[] = {
      {R"("response_format":{"type":"structural_tag"})", "response_format.type"},
      {R"("response_format":{"type":"json_schema"})", "response_format.json_schema"},
      {R"("structured_outputs":{"whitespace_pattern":" "})",
       "structured_outputs.whitespace_pattern"},
      {R"("guided_regex":7)", "guided_regex"},
      {R"("guided_choice":[])", "guided_choice"},
      {R"("grammar":"root ::= \"x\"","guided_regex":"a")", "grammar"}};
  // Its members in order would take minutes to read.
  std::string large = R"("guided_json":{"a0":0)";
  for (int i = 1; i < 100000; ++i) large += fmt::format(",\"a{}\":0", i);
  EXPECT_EQ(read(large + "}").error().parameter, "guided_json");
  for (const auto& [fields, parameter] : wrong) {
    const auto request = read(fields);
    ASSERT_FALSE(request) << fields;
    EXPECT_EQ(request.error().parameter, parameter) << fields;
  }
}

// A schema that ends for certain: texts are short, numbers bounded.
json person() {
  return json::parse(R"({"type":"json_schema","json_schema":{"name":"person","schema":{
      "type":"object","required":["name","age","tags"],"additionalProperties":false,
      "properties":{"name":{"type":"string","maxLength":12},
                    "age":{"type":"integer","minimum":0,"maximum":130},
                    "tags":{"type":"array","items":{"enum":["a","bb","ccc"]},"maxItems":3}}}}})");
}

bool is_person(const json& value) {
  const auto tag = [](const json& one) { return one == "a" || one == "bb" || one == "ccc"; };
  return value.is_object() && value.size() == 3 && value["name"].is_string() &&
         value["age"].is_number_integer() && value["age"] >= 0 && value["age"] <= 130 &&
         value["tags"].is_array() && value["tags"].size() <= 3 &&
         std::ranges::all_of(value["tags"], tag);
}

class FormatsOverHttp : public testing::Test {
 protected:
  void SetUp() override {
    if (!service::has_grammars()) GTEST_SKIP() << "built without xgrammar";
    EngineOptions options = test::demo_options("auto");
    options.session.context = 2048;
    engine_ = test::open_engine(options);
    server_ = std::make_unique<test::TestServer>(*engine_, service::ServiceOptions());
  }

  static json request(int i) {
    json fields = {{"seed", i}, {"temperature", i % 3 == 0 ? 0.0 : 1.5}};
    if (i % 2 == 0) {
      fields["response_format"] = person();
    } else {
      fields["guided_regex"] = "(yes|no), [0-9]{2,4}";
    }
    return fields;
  }

  // The status and body of an answer.
  static std::pair<int, json> chat(std::uint16_t port, const json& fields) {
    json body = {
        {"messages", json::array({{{"role", "user"}, {"content", "Name a person and count."}}})},
        {"max_tokens", 200},
        {"return_token_ids", true}};
    body.update(fields);
    test::HttpClient client(port);
    client.send({}, test::http::verb::post, "/v1/chat/completions", body.dump());
    const auto response = client.receive();
    return {static_cast<int>(response.result_int()), json::parse(response.body())};
  }

  std::shared_ptr<Engine> engine_;
  std::unique_ptr<test::TestServer> server_;
};

// Answers of a model that knows nothing of schemas are valid, and the same with drafts and without,
// alone and beside others.
TEST_F(FormatsOverHttp, AnswersAreValidAndDraftsChangeNothing) {
  service::ServiceOptions options;
  options.draft_length = 0;
  test::TestServer plain(*engine_, options);
  constexpr int kRequests = 12;
  std::vector<json> drafted(kRequests);
  std::vector<std::thread> clients;
  for (int i = 0; i < kRequests; ++i) {
    clients.emplace_back([&, i] {
      drafted[static_cast<std::size_t>(i)] = chat(server_->port(), request(i)).second;
    });
  }
  for (std::thread& client : clients) client.join();
  for (int i = 0; i < kRequests; ++i) {
    const json& choice = drafted[static_cast<std::size_t>(i)]["choices"][0];
    const std::string text = choice["message"]["content"];
    EXPECT_EQ(choice["finish_reason"], "stop") << text;
    if (i % 2 == 0) {
      EXPECT_TRUE(is_person(json::parse(text, nullptr, false))) << text;
    } else {
      EXPECT_TRUE(std::regex_match(text, std::regex("(yes|no), [0-9]{2,4}"))) << text;
    }
    const json alone = chat(plain.port(), request(i)).second;
    EXPECT_EQ(alone["choices"][0]["token_ids"], choice["token_ids"]) << text;
  }
  EXPECT_GT(server_->statistics().drafted, 0);
}

TEST_F(FormatsOverHttp, CompletionsKeepToTheirFormToo) {
  test::HttpClient client(server_->port());
  client.send({}, test::http::verb::post, "/v1/completions",
              R"({"prompt":"Once","max_tokens":20,"guided_choice":["upon a time","more"]})");
  const json answer = json::parse(client.receive().body());
  const std::string text = answer["choices"][0]["text"];
  EXPECT_TRUE(text == "upon a time" || text == "more") << text;
}

TEST_F(FormatsOverHttp, RefusalsComeBeforeTheFirstToken) {
  const std::tuple<json, std::string, std::string> wrong[] = {
      {{{"response_format",
         {{"type", "json_schema"},
          {"json_schema",
           {{"strict", true}, {"schema", {{"type", "array"}, {"uniqueItems", true}}}}}}}},
       "response_format",
       "uniqueItems at #"},
      {{{"guided_regex", "("}}, "guided_regex", "regular expression"},
      {{{"response_format", {{"type", "json_object"}}}, {"min_tokens", 5}}, "min_tokens", "0"},
      {{{"response_format", {{"type", "json_object"}}}, {"ignore_eos", true}},
       "ignore_eos",
       "false"}};
  for (const auto& [fields, parameter, message] : wrong) {
    const auto [status, answer] = chat(server_->port(), fields);
    EXPECT_EQ(status, 400) << fields;
    EXPECT_EQ(answer["error"]["param"], parameter);
    EXPECT_NE(answer["error"]["message"].get<std::string>().find(message), std::string::npos)
        << answer;
  }
}

// Outside strict mode the rest is enforced, and the answer says what is not.
TEST_F(FormatsOverHttp, WhatIsNotEnforcedIsSaid) {
  const json body = {{"messages", json::array({{{"role", "user"}, {"content", "Count."}}})},
                     {"max_tokens", 20},
                     {"guided_json", {{"enum", {"a", "b"}}, {"not", {{"const", "a"}}}}}};
  test::HttpClient client(server_->port());
  const auto answer = client.post(body);
  EXPECT_EQ(answer.result_int(), 200U) << answer.body();
  EXPECT_EQ(answer["X-Kakeya-Not-Enforced"], "not at #");
  EXPECT_FALSE(answer["x-request-id"].empty());
}

}  // namespace
}  // namespace kakeya::openai
