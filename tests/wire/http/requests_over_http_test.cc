// Requests for more than an answer to one prompt, over HTTP: several prompts, prompts repeated with
// their log-probabilities, rules for tokens, priorities, deadlines, signs of life, the end of a
// server.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include "runtime/demo_sessions.h"
#include "wire/http/http_client.h"
#include "wire/http/raw_client.h"
#include "wire/http/test_server.h"

namespace kakeya::wire {
namespace {

namespace http = test::http;
using nlohmann::json;
using test::HttpClient;
using test::HttpResponse;
using test::RawClient;

class RequestsOverHttp : public testing::Test {
 protected:
  RequestsOverHttp() {
    EngineOptions options = test::demo_options("auto");
    options.session.context = 4096;
    engine_ = test::open_engine(options);
    start();
  }

  void start(const service::ServiceOptions& service, const HttpOptions& http = {}) {
    server_.reset();
    server_ = std::make_unique<test::TestServer>(*engine_, service, http);
  }
  void start(const HttpOptions& http = {}) { start(service::ServiceOptions(), http); }

  HttpResponse post(const std::string& path, const json& body, const http::fields& fields = {}) {
    HttpClient client(server_->port());
    client.send(fields, http::verb::post, path, body.dump());
    return client.receive();
  }

  json complete(json body) {
    body.update({{"model", "demo"}, {"temperature", 0}, {"return_token_ids", true}});
    const HttpResponse response = post("/v1/completions", body);
    EXPECT_EQ(response.result_int(), 200u) << response.body();
    return json::parse(response.body());
  }

  static json chat(int max_tokens) {
    return {{"messages", json::array({{{"role", "user"}, {"content", "Count from 5 to 12."}}})},
            {"max_tokens", max_tokens},
            {"return_token_ids", true},
            {"temperature", 0}};
  }

  json endless() const {
    json body = chat(4000);
    body["ignore_eos"] = true;
    return body;
  }

  std::shared_ptr<Engine> engine_;
  std::unique_ptr<test::TestServer> server_;
};

TEST_F(RequestsOverHttp, SeveralPromptsAreAnsweredAsEachAlone) {
  const std::vector<std::string> prompts = {"Once upon a time", "A cat", "5, 6, 7"};
  const json all = complete({{"prompt", prompts}, {"max_tokens", 6}, {"n", 2}});
  ASSERT_EQ(all["choices"].size(), 6u);
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const json one = complete({{"prompt", prompts[i]}, {"max_tokens", 6}});
    tokens += one["usage"]["prompt_tokens"].get<std::int64_t>();
    for (const std::size_t choice : {2 * i, 2 * i + 1}) {
      EXPECT_EQ(all["choices"][choice]["index"], choice);
      EXPECT_EQ(all["choices"][choice]["text"], one["choices"][0]["text"]) << prompts[i];
    }
  }
  EXPECT_EQ(all["usage"]["prompt_tokens"], tokens);
  EXPECT_EQ(all["usage"]["completion_tokens"], 36);
}

// As harnesses ask for the likelihood of given texts.
TEST_F(RequestsOverHttp, APromptIsRepeatedWithItsLogProbabilities) {
  const std::vector<TokenId> ids = engine_->tokenizer().value()->encode("5, 6, 7, 8").value();
  const auto session = engine_->create_session().value();
  ASSERT_TRUE(session->append(std::span(ids).first(1)));
  const std::vector<TokenLogprobs> expected = session->score(std::span(ids).subspan(1), 2).value();
  for (const int max_tokens : {0, 3}) {
    const json choice = complete({{"prompt", json::array({ids})},
                                  {"max_tokens", max_tokens},
                                  {"echo", true},
                                  {"logprobs", 2}})["choices"][0];
    const json& logprobs = choice["logprobs"];
    ASSERT_EQ(logprobs["tokens"].size(), ids.size() + static_cast<std::size_t>(max_tokens));
    EXPECT_EQ(logprobs["top_logprobs"].size(), logprobs["tokens"].size());
    EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(logprobs["token_logprobs"][i + 1].get<float>(), expected[i].token.logprob) << i;
      EXPECT_EQ(logprobs["top_logprobs"][i + 1].size(), 2u);
    }
    // Offsets lead to the tokens' texts.
    std::string text;
    for (std::size_t i = 0; i < logprobs["tokens"].size(); ++i) {
      EXPECT_EQ(logprobs["text_offset"][i], text.size());
      text += logprobs["tokens"][i].get<std::string>();
    }
    EXPECT_EQ(choice["text"], text);
    EXPECT_TRUE(text.starts_with("5, 6, 7, 8"));
    EXPECT_EQ(choice["finish_reason"], "length");
  }
  const json text = complete({{"prompt", "a cat"}, {"max_tokens", 0}, {"echo", true}});
  EXPECT_EQ(text["choices"][0]["text"], "a cat");
  EXPECT_EQ(text["usage"]["completion_tokens"], 0);
}

TEST_F(RequestsOverHttp, ARepeatedPromptIsStreamedFirst) {
  const json body = {{"prompt", {"a cat", "a dog"}},
                     {"max_tokens", 2},
                     {"echo", true},
                     {"stream", true},
                     {"temperature", 0}};
  std::vector<std::string> texts(2);
  for (const std::string& event : test::event_texts(post("/v1/completions", body).body())) {
    if (event == "[DONE]") continue;
    const json choice = json::parse(event)["choices"][0];
    texts[choice["index"].get<std::size_t>()] += choice["text"].get<std::string>();
  }
  EXPECT_TRUE(texts[0].starts_with("a cat") && texts[0].size() > 5) << texts[0];
  EXPECT_TRUE(texts[1].starts_with("a dog") && texts[1].size() > 5) << texts[1];
}

TEST_F(RequestsOverHttp, RulesForTokensAreKept) {
  const std::vector<TokenId> plain =
      json::parse(post("/v1/chat/completions", chat(60)).body())["choices"][0]["token_ids"];
  ASSERT_GT(plain.size(), 12u);

  json body = chat(60);
  body["min_tokens"] = plain.size() + 5;
  const std::vector<TokenId> longer =
      json::parse(post("/v1/chat/completions", body).body())["choices"][0]["token_ids"];
  EXPECT_GT(longer.size(), plain.size() + 4);
  EXPECT_TRUE(std::equal(plain.begin(), plain.end() - 1, longer.begin()));

  body = chat(60);
  body["stop_token_ids"] = {plain[4]};
  const json stopped = json::parse(post("/v1/chat/completions", body).body())["choices"][0];
  const auto first = std::ranges::find(plain, plain[4]) - plain.begin();
  EXPECT_EQ(stopped["token_ids"].size(), static_cast<std::size_t>(first) + 1);
  EXPECT_EQ(stopped["finish_reason"], "stop");

  body = chat(20);
  body["allowed_token_ids"] = {plain[0], plain[1]};
  for (const TokenId id :
       json::parse(post("/v1/chat/completions", body).body())["choices"][0]["token_ids"]
           .get<std::vector<TokenId>>()) {
    EXPECT_TRUE(id == plain[0] || id == plain[1]);
  }

  body = chat(60);
  body["repetition_penalty"] = 50;
  EXPECT_NE(json::parse(post("/v1/chat/completions", body).body())["choices"][0]["token_ids"],
            json(plain));
}

TEST_F(RequestsOverHttp, AnAnswerGoesOnFromItsBeginning) {
  json body = chat(60);
  body["messages"].push_back({{"role", "assistant"}, {"content", "5, 6, 7,"}});
  body["continue_final_message"] = true;
  const json answer = json::parse(post("/v1/chat/completions", body).body());
  EXPECT_EQ(answer["choices"][0]["message"]["content"], " 8, 9, 10, 11, 12.") << answer;
}

TEST_F(RequestsOverHttp, WhatIsUrgentComesFirst) {
  start({.scheduler = {.max_sequences = 1, .max_waiting = 8}});
  HttpClient busy(server_->port());
  json first = chat(400);
  first["ignore_eos"] = true;
  busy.send({}, http::verb::post, "/v1/chat/completions", first.dump());
  while (server_->statistics().running == 0) std::this_thread::yield();
  std::mutex mutex;
  std::vector<int> order;
  std::vector<std::thread> clients;
  for (const int priority : {3, 0, -5}) {
    clients.emplace_back([&, priority] {
      json body = chat(400);  // long enough for who is first to be noted first
      body["ignore_eos"] = true;
      body["priority"] = priority;
      EXPECT_EQ(post("/v1/chat/completions", body).result_int(), 200u);
      const std::lock_guard lock(mutex);
      order.push_back(priority);
    });
    while (server_->statistics().waiting < std::ssize(clients)) std::this_thread::yield();
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(order, (std::vector<int>{-5, 0, 3}));
}

TEST_F(RequestsOverHttp, ARequestEndsAtItsDeadline) {
  http::fields fields;
  fields.set("X-Request-Timeout", "0.05");
  const HttpResponse late = post("/v1/chat/completions", endless(), fields);
  EXPECT_EQ(late.result_int(), 504u) << late.body();
  fields.set("X-Request-Timeout", "soon");
  EXPECT_EQ(post("/v1/chat/completions", chat(2), fields).result_int(), 400u);
  start({.request_timeout = std::chrono::duration<double>(0.05)});
  fields.set("X-Request-Timeout", "100");  // the server's own is less
  json stream = endless();
  stream["stream"] = true;
  const auto events = test::event_texts(post("/v1/chat/completions", stream, fields).body());
  EXPECT_NE(json::parse(events.back())["error"]["message"].get<std::string>().find("deadline"),
            std::string::npos);
}

TEST_F(RequestsOverHttp, AStreamThatWaitsShowsSignsOfLife) {
  start({.scheduler = {.max_sequences = 1}}, {.ping_interval = std::chrono::milliseconds(20)});
  HttpClient busy(server_->port());
  busy.send({}, http::verb::post, "/v1/chat/completions", endless().dump());
  while (server_->statistics().running == 0) std::this_thread::yield();
  const RawClient waiting(server_->port());
  json body = chat(2);
  body["stream"] = true;
  const std::string text = body.dump();
  waiting.send(fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      text.size(), text));
  const std::string header = waiting.read_until("\r\n\r\n");
  EXPECT_NE(header.find("text/event-stream"), std::string::npos);
  EXPECT_NE(header.find("X-Accel-Buffering: no"), std::string::npos);
  waiting.read_until(": ping\n\n");
  waiting.read_until(": ping\n\n");
}

TEST_F(RequestsOverHttp, NamesTheModelAndItsContext) {
  HttpClient client(server_->port());
  const json one = json::parse(client.get("/v1/models/demo").body());
  EXPECT_EQ(one["id"], "demo");
  EXPECT_EQ(one["max_model_len"], 4096);
  const json all = json::parse(client.get("/v1/models").body());
  EXPECT_EQ(all["data"], json::array({one}));
  // As Anthropic's clients read them.
  EXPECT_EQ(one["type"], "model");
  EXPECT_EQ(one["display_name"], "demo");
  const std::time_t created = one["created"];
  EXPECT_EQ(one["created_at"], fmt::format("{:%FT%T}Z", fmt::gmtime(created)));
  EXPECT_EQ(all["has_more"], false);
  EXPECT_EQ(all["first_id"], "demo");
  EXPECT_EQ(all["last_id"], "demo");
  EXPECT_EQ(client.get("/v1/models/other").result_int(), 404u);
}

TEST_F(RequestsOverHttp, ATooLongConversationIsSaidInWordsThatClientsKnow) {
  json body = chat(4);
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "word ";
  body["messages"][0]["content"] = text;
  const HttpResponse response = post("/v1/chat/completions", body);
  EXPECT_EQ(response.result_int(), 400u);
  const json error = json::parse(response.body())["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
  const std::string message = error["message"];
  EXPECT_NE(message.find("maximum context length is 4096 tokens, however you requested "),
            std::string::npos)
      << message;
  EXPECT_EQ(message.find("at least"), std::string::npos) << message;  // so many can be counted
}

TEST_F(RequestsOverHttp, PagesOfAllowedOriginsMayRead) {
  start({.allowed_hosts = {"llm.example"}, .allowed_origins = {"https://a.example"}});
  for (const bool allowed : {true, false}) {
    http::fields fields;
    fields.set(http::field::host, "LLM.example:443");
    fields.set(http::field::origin, allowed ? "https://a.example" : "https://b.example");
    fields.set("Access-Control-Request-Method", "POST");
    fields.set("Access-Control-Request-Headers", "authorization, content-type");
    HttpClient client(server_->port());
    client.send(fields, http::verb::options, "/v1/chat/completions");
    const RawClient unused(server_->port());
    const HttpResponse preflight = client.receive();
    EXPECT_EQ(preflight.result_int(), 204u);
    EXPECT_EQ(preflight[http::field::access_control_allow_origin],
              allowed ? "https://a.example" : "");
    EXPECT_EQ(preflight["Access-Control-Allow-Headers"],
              allowed ? "authorization, content-type" : "");
    EXPECT_EQ(post("/v1/chat/completions", chat(1), fields)["Access-Control-Allow-Origin"],
              allowed ? "https://a.example" : "");
  }
}

// The value of a metric of vLLM's.
double value_of(const std::string& metrics, const std::string& name) {
  const std::string sample = "\nvllm:" + name + "{model_name=\"demo\"} ";
  const std::size_t at = metrics.find(sample);
  return at == metrics.npos ? -1.0 : std::stod(metrics.substr(at + sample.size()));
}

TEST_F(RequestsOverHttp, RoutersFindTheMetricsOfVllm) {
  HttpClient probe(server_->port());
  const std::string idle = probe.get("/metrics").body();
  EXPECT_EQ(value_of(idle, "num_requests_running"), 0.0);
  HttpClient busy(server_->port());
  json body = chat(1000);
  body["ignore_eos"] = true;
  busy.send({}, http::verb::post, "/v1/chat/completions", body.dump());
  while (server_->statistics().running == 0) std::this_thread::yield();
  const std::string metrics = probe.get("/metrics").body();
  EXPECT_EQ(value_of(metrics, "num_requests_running"), 1.0);
  EXPECT_EQ(value_of(metrics, "num_requests_waiting"), 0.0);
  EXPECT_GT(value_of(metrics, "kv_cache_usage_perc"), 0.0);
  EXPECT_LT(value_of(metrics, "kv_cache_usage_perc"), 1.0);
  EXPECT_EQ(value_of(idle, "kv_cache_usage_perc"), 0.0);
}

TEST_F(RequestsOverHttp, AnAnnouncedDrainTakesRequestsStill) {
  server_->service().server().announce_drain();
  HttpClient probe(server_->port());
  EXPECT_EQ(probe.get("/readyz").result_int(), 503u);
  EXPECT_EQ(probe.get("/livez").result_int(), 200u);
  EXPECT_EQ(post("/v1/chat/completions", chat(1)).result_int(), 200u);
}

TEST_F(RequestsOverHttp, ADrainingServerAnswersWhatItHas) {
  HttpClient busy(server_->port());
  json body = chat(300);
  body["ignore_eos"] = true;
  busy.send({}, http::verb::post, "/v1/chat/completions", body.dump());
  while (server_->statistics().running == 0) std::this_thread::yield();
  server_->service().server().drain();
  EXPECT_TRUE(server_->service().server().is_answering());
  HttpClient probe(server_->port());
  for (const char* readiness : {"/health", "/readyz"}) {
    const HttpResponse health = probe.get(readiness);
    EXPECT_EQ(health.result_int(), 503u);
    EXPECT_NE(health.body().find("draining"), std::string::npos);
  }
  EXPECT_EQ(probe.get("/livez").result_int(), 200u);
  const HttpResponse refused = post("/v1/chat/completions", chat(1));
  EXPECT_EQ(refused.result_int(), 503u);
  EXPECT_FALSE(refused.keep_alive());
  EXPECT_EQ(json::parse(busy.receive().body())["usage"]["completion_tokens"], 300);
  while (server_->service().server().is_answering()) std::this_thread::yield();
}

TEST_F(RequestsOverHttp, LoadAndUnloadTheOneModelByItsNameAlone) {
  const auto status = [&](const char* path, const char* name) {
    return post(path, {{"model", name}}).result_int();
  };
  EXPECT_EQ(status("/models/load", "demo"), 200u);
  EXPECT_EQ(status("/models/load", "another"), 404u);
  EXPECT_EQ(status("/models/unload", "another"), 404u);
  EXPECT_EQ(status("/models/unload", "demo"), 400u) << "it stays";
  EXPECT_EQ(status("/models/load", ""), 400u);
}

}  // namespace
}  // namespace kakeya::wire
