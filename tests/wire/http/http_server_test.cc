// The server as clients see it, over a loopback: answers are those of sessions, id for id.
#include "wire/http/http_server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <thread>

#include "runtime/demo_sessions.h"
#include "service/answer_splitter.h"
#include "wire/http/http_client.h"
#include "wire/http/test_server.h"

namespace kakeya::wire {
namespace {

namespace http = test::http;
using nlohmann::json;
using test::event_texts;
using test::HttpClient;
using test::HttpResponse;

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() {
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

  HttpClient client() const { return HttpClient(server_->port()); }

  static json request(const std::string& text) {
    return {{"model", "demo"},
            {"messages", json::array({{{"role", "user"}, {"content", text}}})},
            {"max_tokens", 60},
            {"return_token_ids", true},
            {"temperature", 0}};
  }

  static json sampled(const std::string& text, int seed) {
    json body = request(text);
    body.update({{"temperature", 1.2}, {"top_p", 0.9}, {"top_k", 40}, {"seed", seed}});
    return body;
  }

  // A request that no stop id ends before it has thousands of tokens.
  json endless() const {
    json body = request("Count from 5 to 12.");
    body["max_tokens"] = 4000;
    for (const TokenId id : engine_->stop_ids()) body["logit_bias"][std::to_string(id)] = -100;
    return body;
  }

  // The answer of a session of its own to such a body.
  std::vector<TokenId> expected_ids(const json& body) const {
    const ChatMessage message = {.role = "user", .content = body["messages"][0]["content"]};
    const ChatPrompt prompt = engine_->apply_chat_template({&message, 1}).value();
    const Tokenizer& tokenizer = *engine_->tokenizer().value();
    const auto session = engine_->create_session().value();
    EXPECT_TRUE(session->append(tokenizer.encode(prompt.text, {.plain = prompt.plain}).value()));
    GenerateOptions options = {.max_tokens = body["max_tokens"]};
    options.sampling = engine_->recommended_sampling();
    options.sampling.temperature = body["temperature"];
    if (body.contains("top_p")) options.sampling.top_p = body["top_p"];
    if (body.contains("top_k")) options.sampling.top_k = body["top_k"];
    if (body.contains("seed")) options.sampling.seed = body["seed"];
    return session->generate(options).value().ids;
  }

  static std::vector<TokenId> ids_of(const HttpResponse& response) {
    EXPECT_EQ(response.result_int(), 200u) << response.body();
    return json::parse(response.body())["choices"][0]["token_ids"];
  }

  // Ids and text of a stream, whose form is checked.
  static std::pair<std::vector<TokenId>, std::string> stream_of(const HttpResponse& response) {
    std::vector<TokenId> ids;
    std::string text;
    const std::vector<std::string> events = event_texts(response.body());
    EXPECT_EQ(events.back(), "[DONE]");
    for (std::size_t at = 0; at + 1 < events.size(); ++at) {
      const json chunk = json::parse(events[at]);
      EXPECT_EQ(chunk["object"], "chat.completion.chunk");
      if (chunk["choices"].empty()) continue;
      const json& choice = chunk["choices"][0];
      text += choice["delta"].value("content", "");
      if (!choice.contains("token_ids")) continue;
      for (const TokenId id : choice["token_ids"]) ids.push_back(id);
    }
    return {ids, text};
  }

  void expect_error(const HttpResponse& response, unsigned status, const char* part) {
    EXPECT_EQ(response.result_int(), status) << response.body();
    const json error = json::parse(response.body())["error"];
    EXPECT_NE(error["message"].get<std::string>().find(part), std::string::npos) << error;
    for (const char* field : {"type", "param", "code"}) EXPECT_TRUE(error.contains(field));
  }

  void wait_until_idle() const {
    while (server_->statistics().running + server_->statistics().waiting > 0) {
      std::this_thread::yield();
    }
  }

  std::shared_ptr<Engine> engine_;
  std::unique_ptr<test::TestServer> server_;
};

TEST_F(HttpServerTest, AnswersAreThoseOfASession) {
  HttpClient client = this->client();  // one connection for all
  for (const json& body : {request("Count from 5 to 12."), sampled("Tell me a story.", 7),
                           sampled("Tell me a story.", 8)}) {
    const HttpResponse response = client.post(body);
    const std::vector<TokenId> expected = expected_ids(body);
    EXPECT_EQ(ids_of(response), expected);
    const json answer = json::parse(response.body());
    EXPECT_EQ(answer["object"], "chat.completion");
    EXPECT_EQ(answer["choices"][0]["message"]["content"],
              engine_->tokenizer().value()->decode(expected));
    EXPECT_EQ(answer["usage"]["completion_tokens"], expected.size());
    EXPECT_EQ(answer["usage"]["total_tokens"],
              answer["usage"]["prompt_tokens"].get<std::size_t>() + expected.size());
  }
}

TEST_F(HttpServerTest, EightRequestsAtOnceGetWhatEachAloneWould) {
  std::vector<json> bodies;
  for (int index = 0; index < 8; ++index) {
    json body = index % 3 == 0 ? request(fmt::format("Count from {} to 20.", index))
                               : sampled(fmt::format("Write about {}.", index), index);
    body["stream"] = index % 2 == 0;
    bodies.push_back(std::move(body));
  }
  std::vector<HttpResponse> responses(bodies.size());
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < bodies.size(); ++index) {
    threads.emplace_back([&, index] { responses[index] = client().post(bodies[index]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t index = 0; index < bodies.size(); ++index) {
    const auto ids =
        bodies[index]["stream"] ? stream_of(responses[index]).first : ids_of(responses[index]);
    EXPECT_EQ(ids, expected_ids(bodies[index])) << index;
  }
}

TEST_F(HttpServerTest, StreamsTextInEventsAndSaysWhatWasUsed) {
  json body = request("Count from 5 to 12.");
  body["stream"] = true;
  body["stream_options"]["include_usage"] = true;
  const HttpResponse response = client().post(body);
  EXPECT_EQ(response[http::field::content_type], "text/event-stream");
  EXPECT_TRUE(response.chunked());
  const auto [ids, text] = stream_of(response);
  EXPECT_EQ(text, "5, 6, 7, 8, 9, 10, 11, 12.");
  const std::vector<std::string> events = event_texts(response.body());
  ASSERT_GE(events.size(), 5u);
  EXPECT_EQ(json::parse(events[0])["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(json::parse(events[events.size() - 3])["choices"][0]["finish_reason"], "stop");
  const json usage = json::parse(events[events.size() - 2]);
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["completion_tokens"], ids.size());
}

TEST_F(HttpServerTest, SaysWhichTextWasDrafted) {
  start({.draft_length = 3});
  json body = request("Count from 5 to 12.");
  body["return_runs"] = true;
  const Tokenizer& tokenizer = *engine_->tokenizer().value();
  const auto session = engine_->create_session().value();
  const ChatMessage message = {.role = "user", .content = "Count from 5 to 12."};
  const ChatPrompt prompt = engine_->apply_chat_template({&message, 1}).value();
  ASSERT_TRUE(session->append(tokenizer.encode(prompt.text, {.plain = prompt.plain}).value()));
  json expected = json::array();
  const GenerateOptions options = {.max_tokens = 60, .draft_length = 3};
  const auto on_token = [&](const TokenEvent& token) {
    const std::string text = tokenizer.decode({&token.id, 1});
    if (text.empty()) return true;  // the stop id
    if (expected.empty() || expected.back()["drafted"] != token.drafted) {
      expected.push_back({{"text", ""}, {"drafted", token.drafted}});
    }
    expected.back()["text"] = expected.back()["text"].get<std::string>() + text;
    return true;
  };
  ASSERT_TRUE(session->generate(options, on_token).has_value());
  ASSERT_GT(expected.size(), 3u);
  EXPECT_EQ(json::parse(client().post(body).body())["choices"][0]["runs"], expected);

  body["stream"] = true;
  json streamed = json::array();
  for (const std::string& event : event_texts(client().post(body).body())) {
    if (event == "[DONE]") continue;
    for (const json& run : json::parse(event)["choices"][0].value("runs", json::array())) {
      if (streamed.empty() || streamed.back()["drafted"] != run["drafted"]) {
        streamed.push_back({{"text", ""}, {"drafted", run["drafted"]}});
      }
      streamed.back()["text"] =
          streamed.back()["text"].get<std::string>() + run["text"].get<std::string>();
    }
  }
  EXPECT_EQ(streamed, expected);
}

TEST_F(HttpServerTest, StopStringsAndLengthEndAnswers) {
  json body = request("Count from 5 to 12.");
  body["stop"] = {"never", ", 9"};
  json answer = json::parse(client().post(body).body());
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "5, 6, 7, 8");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  body["stream"] = true;
  EXPECT_EQ(stream_of(client().post(body)).second, "5, 6, 7, 8");
  body = request("Count from 5 to 12.");
  body["max_completion_tokens"] = 3;
  answer = json::parse(client().post(body).body());
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 3);
}

TEST_F(HttpServerTest, ThoughtsComeApart) {
  // Biases that make the demo model open a channel behind some words; thoughts end the answer.
  json body = request("Tell me a story.");
  const Tokenizer& tokenizer = *engine_->tokenizer().value();
  const service::ThoughtMarkers markers = service::find_channel_markers(tokenizer).value();
  body.update(
      {{"frequency_penalty", 2},
       {"presence_penalty", 2},
       {"logit_bias", {{std::to_string(markers.begin), 10}, {std::to_string(markers.end), 18}}}});
  const HttpResponse whole = client().post(body);
  const std::vector<TokenId> ids = ids_of(whole);
  const auto first = std::ranges::find(ids, markers.begin);
  const auto last = std::find(ids.rbegin(), ids.rend(), markers.begin).base();
  ASSERT_NE(first, ids.end());
  const std::string said = tokenizer.decode({ids.begin(), first});
  const std::string thought = tokenizer.decode({last, ids.end()});
  ASSERT_FALSE(said.empty());
  ASSERT_FALSE(thought.empty());
  const json message = json::parse(whole.body())["choices"][0]["message"];
  EXPECT_EQ(message["content"], said);
  EXPECT_EQ(message["reasoning_content"], thought);

  body["stream"] = true;
  const HttpResponse stream = client().post(body);
  EXPECT_EQ(stream_of(stream).second, said);
  std::string streamed;
  for (const std::string& event : event_texts(stream.body())) {
    if (event == "[DONE]") continue;
    streamed += json::parse(event)["choices"][0]["delta"].value("reasoning_content", "");
  }
  EXPECT_EQ(streamed, thought);

  body = request("Count from 5 to 12.");
  const json plain = json::parse(client().post(body).body())["choices"][0]["message"];
  EXPECT_FALSE(plain.contains("reasoning_content"));
}

TEST_F(HttpServerTest, GivesLogProbabilities) {
  json body = request("Count from 5 to 12.");
  body["max_tokens"] = 4;
  body["logprobs"] = true;
  body["top_logprobs"] = 2;
  const json choice = json::parse(client().post(body).body())["choices"][0];
  ASSERT_EQ(choice["logprobs"]["content"].size(), 4u);
  for (const json& entry : choice["logprobs"]["content"]) {
    EXPECT_LE(entry["logprob"], 0.0);
    ASSERT_EQ(entry["top_logprobs"].size(), 2u);
    EXPECT_EQ(entry["top_logprobs"][0]["token"], entry["token"]);  // greedy
  }
}

TEST_F(HttpServerTest, AClientThatGoesAwayEndsItsRequest) {
  for (const bool stream : {true, false}) {
    json body = endless();
    body["stream"] = stream;
    const std::int64_t before = server_->statistics().tokens;
    {
      HttpClient client = this->client();
      client.send({}, http::verb::post, "/v1/chat/completions", body.dump());
      while (server_->statistics().tokens == before) std::this_thread::yield();
    }
    wait_until_idle();
    EXPECT_LT(server_->statistics().tokens - before, 3000);
  }
}

// A request for embeddings of texts of ids that differ, more than have a place at a time.
json embedding_body(std::size_t texts, std::size_t tokens) {
  json body = {{"model", "demo"}, {"input", json::array()}};
  for (std::size_t i = 0; i < texts; ++i) {
    body["input"].push_back(std::vector<TokenId>(tokens, 100 + static_cast<TokenId>(i)));
  }
  return body;
}

TEST_F(HttpServerTest, EmbeddingsAreTheEnginesBesideAnswers) {
  start({.scheduler = {.max_sequences = 2, .max_waiting = 3}});  // no room for all at once
  json asked = request("Count from 5 to 12.");
  HttpClient answered = client();
  answered.send({}, http::verb::post, "/v1/chat/completions", asked.dump());
  // The texts take every place that is free, so the answer has its own first.
  while (server_->statistics().prompt_rows == 0) std::this_thread::yield();
  const json body = embedding_body(20, 150);
  HttpClient client = this->client();
  client.send({}, http::verb::post, "/v1/embeddings", body.dump());
  const HttpResponse response = client.receive();
  ASSERT_EQ(response.result_int(), 200u) << response.body();
  const json data = json::parse(response.body())["data"];
  ASSERT_EQ(data.size(), 20u);
  for (std::size_t i = 0; i < data.size(); ++i) {
    EXPECT_EQ(data[i]["index"], i);
    EXPECT_EQ(data[i]["embedding"].get<std::vector<float>>(),
              engine_->embed(body["input"][i].get<std::vector<TokenId>>()).value());
  }
  EXPECT_EQ(ids_of(answered.receive()), expected_ids(asked));
  EXPECT_GE(server_->statistics().prompt_rows, 20 * 150);
  client.send({}, http::verb::post, "/v1/embeddings", R"({"model":"demo","input":[-1,5]})");
  expect_error(client.receive(), 400, "token id");
}

TEST_F(HttpServerTest, AClientThatGoesAwayEndsItsEmbeddings) {
  const std::int64_t before = server_->statistics().prompt_rows;
  {
    HttpClient client = this->client();
    client.send({}, http::verb::post, "/v1/embeddings", embedding_body(4, 16000).dump());
    while (server_->statistics().prompt_rows == before) std::this_thread::yield();
  }
  wait_until_idle();
  EXPECT_LT(server_->statistics().prompt_rows - before, 4 * 16000);
}

TEST_F(HttpServerTest, StoppingTellsWhoIsBeingAnswered) {
  json body = endless();
  body["stream"] = true;
  HttpClient busy = client();
  HttpClient idle = client();
  busy.send({}, http::verb::post, "/v1/chat/completions", body.dump());
  busy.wait_for_bytes();
  server_->http().stop();
  const std::vector<std::string> events = event_texts(busy.receive().body());
  EXPECT_EQ(json::parse(events.back())["error"]["message"], "the server is shutting down");
  EXPECT_THROW(idle.get("/health"), boost::system::system_error);
}

TEST_F(HttpServerTest, AFullQueueSaysWhenToComeBack) {
  start({.scheduler = {.max_sequences = 1, .max_waiting = 1}});
  std::list<HttpClient> clients;
  json body = endless();
  for (std::int64_t count = 1; count <= 2; ++count) {
    clients.emplace_back(server_->port());
    clients.back().send({}, http::verb::post, "/v1/chat/completions", body.dump());
    const auto taken = [&] {
      return server_->statistics().running + server_->statistics().waiting;
    };
    while (taken() < count) std::this_thread::yield();
  }
  const HttpResponse response = client().post(body);
  expect_error(response, 429, "waiting");
  EXPECT_EQ(response[http::field::retry_after], "1");
}

TEST_F(HttpServerTest, RefusesBadRequestsInOpenaisWords) {
  HttpClient client = this->client();
  json body = request("a");
  body["temperature"] = "hot";
  expect_error(client.post(body), 400, "temperature: expected a number from 0 to 2, got \"hot\"");
  body = request("a");
  body["model"] = "other";
  expect_error(client.post(body), 404, "got 'other'");
  body = request("a");
  body["stop"] = std::string(1 << 20, 'x');
  expect_error(client.post(body), 400, "stop");
  body = request("a");
  body["logit_bias"]["999999"] = 1;
  const HttpResponse biased = client.post(body);
  expect_error(biased, 400, "logit_bias");
  EXPECT_EQ(json::parse(biased.body())["error"]["param"], "logit_bias");
  const HttpResponse longer = client.post(request(std::string(1 << 20, 'a')));
  expect_error(longer, 400, "4096");
  EXPECT_EQ(json::parse(longer.body())["error"]["code"], "context_length_exceeded");
  expect_error(client.get("/v1/nothing"), 404, "/v1/nothing");
  client.send({}, http::verb::delete_, "/health");
  expect_error(client.receive(), 405, "DELETE");
  // The connection is as good as before.
  EXPECT_EQ(client.get("/health").body(), R"({"status":"ok"})");
  EXPECT_EQ(json::parse(client.get("/v1/models").body())["data"][0]["id"], "demo");
}

TEST_F(HttpServerTest, RefusesWhatBrowsersOfOtherSitesCanSend) {
  http::fields fields;
  fields.set(http::field::host, "example.com");
  HttpClient renamed = client();
  renamed.send(fields, http::verb::get, "/health");
  expect_error(renamed.receive(), 403, "Host");
  fields.clear();
  fields.set(http::field::content_type, "text/plain");
  HttpClient plain = client();
  plain.send(fields, http::verb::post, "/v1/chat/completions", request("a").dump());
  expect_error(plain.receive(), 415, "Content-Type");
}

TEST_F(HttpServerTest, RefusesBodiesThatArePacked) {
  http::fields fields;
  fields.set(http::field::content_type, "application/json");
  for (const char* const encoding : {"gzip", "identity, br"}) {
    fields.set(http::field::content_encoding, encoding);
    HttpClient packed = client();
    packed.send(fields, http::verb::post, "/v1/chat/completions", request("a").dump());
    expect_error(packed.receive(), 415, "Content-Encoding");
  }
  fields.set(http::field::content_encoding, "Identity");
  HttpClient plain = client();
  plain.send(fields, http::verb::post, "/v1/chat/completions", request("a").dump());
  EXPECT_EQ(plain.receive().result_int(), 200U);
}

TEST_F(HttpServerTest, ServesThePageAndLetsItLoadNothingElse) {
  HttpClient client = this->client();
  const std::string page = client.get("/").body();
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  for (const char* part : {"style=", "<style", "onclick", "http:", "https:"}) {
    EXPECT_EQ(page.find(part), std::string::npos) << part;
  }
  const std::pair<const char*, const char*> files[] = {
      {"/", "text/html; charset=utf-8"},
      {"/?theme=dark", "text/html; charset=utf-8"},
      {"/page/page.css", "text/css; charset=utf-8"},
      {"/page/page.js", "text/javascript; charset=utf-8"},
      {"/page/markdown.js", "text/javascript; charset=utf-8"}};
  for (const auto& [path, type] : files) {
    const HttpResponse response = client.get(path);
    EXPECT_EQ(response.result_int(), 200u) << path;
    EXPECT_EQ(response[http::field::content_type], type) << path;
    EXPECT_EQ(response["Content-Security-Policy"],
              "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
              "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    EXPECT_EQ(response["X-Content-Type-Options"], "nosniff");
    EXPECT_EQ(response["Referrer-Policy"], "no-referrer");
    EXPECT_EQ(response[http::field::cache_control], "no-cache");
  }
  for (const char* path : {"/page", "/page/", "/page/../page/page.css", "/page.html"}) {
    expect_error(client.get(path), 404, path);
  }
  client.send({}, http::verb::post, "/");
  expect_error(client.receive(), 405, "POST");
}

TEST_F(HttpServerTest, BoundsWhatAClientMaySend) {
  start({.most_body_bytes = 1000, .most_header_bytes = 500});
  expect_error(client().post(request(std::string(2000, 'a'))), 413, "1000 bytes");
  HttpClient header = client();
  header.send_bytes("GET /health HTTP/1.1\r\nX: " + std::string(1000, 'a') + "\r\n\r\n");
  expect_error(header.receive(), 431, "500 bytes");
  HttpClient garbage = client();
  garbage.send_bytes("hello\r\n\r\n");
  expect_error(garbage.receive(), 400, "HTTP/1.1");
}

TEST_F(HttpServerTest, TurnsAwayWhoIsTooMuch) {
  start({.most_connections = 1});
  HttpClient first = client();
  first.send({}, http::verb::post, "/v1/chat/completions", endless().dump());
  while (server_->statistics().running == 0) std::this_thread::yield();
  HttpClient second = client();
  expect_error(second.receive(), 503, "too many");
}

TEST_F(HttpServerTest, ASlowHeaderIsNotWaitedForForever) {
  start({.header_timeout = std::chrono::seconds(0)});
  HttpClient slow = client();
  EXPECT_THROW(slow.receive(), boost::system::system_error);
}

TEST_F(HttpServerTest, RefusesAPortThatIsTakenAndOtherMachines) {
  const auto taken =
      HttpServer::start(server_->service(), {.port = server_->port()}, {openai::dialect()});
  ASSERT_FALSE(taken.has_value());
  EXPECT_EQ(taken.error().code(), StatusCode::kUnavailable);
  for (const char* host : {"0.0.0.0", "192.168.0.1", "::", "example.com", ""}) {
    const auto open =
        HttpServer::start(server_->service(), {.host = host, .port = 0}, {openai::dialect()});
    ASSERT_FALSE(open.has_value()) << host;
    EXPECT_EQ(open.error().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace kakeya::wire
