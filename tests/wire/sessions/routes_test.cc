// Sessions over HTTP: conversations that name themselves are there, can be forked and ended, and
// keys see their own alone.
#include <gmock/gmock.h>

#include <fstream>

#include "runtime/demo_sessions.h"
#include "wire/http/http_client.h"
#include "wire/http/keys.h"
#include "wire/http/test_server.h"

namespace kakeya::sessions {
namespace {

using nlohmann::json;
using test::HttpClient;
using test::http::verb;
using testing::HasSubstr;

class SessionsOverHttp : public testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options = test::demo_options("auto");
    options.session.grow = true;
    options.prompt_cache_bytes = std::uint64_t{64} << 20;
    engine_ = test::open_engine(options);
    server_ = std::make_unique<test::TestServer>(*engine_, service::ServiceOptions());
  }

  using Fields = std::vector<std::pair<std::string, std::string>>;
  json send(verb verb,
            const std::string& path,
            const json& body = nullptr,
            unsigned status = 200,
            const Fields& fields = {}) {
    HttpClient client(server_->port());
    test::HttpResponse::fields_type header;
    for (const auto& [name, value] : fields) header.set(name, value);
    client.send(header, verb, path, body.is_null() ? "" : body.dump());
    const auto response = client.receive();
    EXPECT_EQ(response.result_int(), status) << path << " " << response.body();
    return json::parse(response.body(), nullptr, false);
  }
  json chat(const Fields& fields, unsigned status = 200, const json& more = json::object()) {
    json body = {
        {"model", "demo"},
        {"messages", json::array({{{"role", "user"}, {"content", "Count from 5 to 12."}}})},
        {"temperature", 0}};
    body.update(more);
    return send(verb::post, "/v1/chat/completions", body, status, fields);
  }
  json list() { return send(verb::get, "/v1/sessions")["data"]; }

  std::shared_ptr<Engine> engine_;
  std::unique_ptr<test::TestServer> server_;
};

TEST_F(SessionsOverHttp, AConversationThatNamesItselfIsThere) {
  for (const char* const field :
       {"X-Dynamo-Session-ID", "x-claude-code-session-id", "session-id", "x-session-id"}) {
    const json answer =
        chat({{field, std::string("by-") + field}, {"X-Dynamo-Parent-Session-ID", "root"}});
    const json session = send(verb::get, std::string("/v1/sessions/by-") + field);
    const json usage = answer["usage"];
    EXPECT_EQ(session["tokens"],
              usage["prompt_tokens"].get<int>() + usage["completion_tokens"].get<int>());
    EXPECT_EQ(session["parent"], "root");
    EXPECT_EQ(session["decoding"], "auto");
    EXPECT_GT(session["footprint"]["cached_tokens"], 0);
    EXPECT_GT(session["footprint"]["memory_bytes"], 0);
  }
  EXPECT_EQ(list().size(), 4U);
  chat({});  // belongs to none
  chat({{"x-session-id", "two-answers"}}, 200, {{"n", 2}, {"temperature", 1}});
  EXPECT_EQ(list().size(), 4U);
}

TEST_F(SessionsOverHttp, AreFoundByIdsThatClientsQuote) {
  const std::pair<const char*, const char*> ids[] = {{"a:b@c=d+e", "a%3Ab%40c%3Dd%2Be"},
                                                     {"a/fork", "a%2Ffork"},
                                                     {"50%", "50%25"},
                                                     {"a/b/c", "a%2fb%2fc"}};
  for (const auto& [id, quoted] : ids) {
    const std::string path = std::string("/v1/sessions/") + quoted;
    EXPECT_EQ(send(verb::post, "/v1/sessions", {{"session_id", id}})["id"], id);
    EXPECT_EQ(send(verb::get, path)["id"], id);
    EXPECT_EQ(send(verb::post, path + "/fork", json::object())["parent"], id);
    EXPECT_EQ(send(verb::delete_, path)["id"], id);
  }
  send(verb::post, "/v1/sessions", {{"session_id", "kept"}});
  send(verb::get, "/v1/sessions/kept/x", nullptr, 404);
  send(verb::delete_, "/v1/sessions/kept/x", nullptr, 404);
  send(verb::get, "/v1/sessions/kept");
}

TEST_F(SessionsOverHttp, AStreamIsKeptAsAWholeAnswerIs) {
  chat({{"x-session-id", "whole"}});
  HttpClient client(server_->port());
  test::HttpResponse::fields_type header;
  header.set("x-session-id", "streamed");
  const json body = {
      {"model", "demo"},
      {"messages", json::array({{{"role", "user"}, {"content", "Count from 5 to 12."}}})},
      {"temperature", 0},
      {"stream", true}};
  client.send(header, verb::post, "/v1/chat/completions", body.dump());
  EXPECT_THAT(client.receive().body(), HasSubstr("[DONE]"));
  EXPECT_EQ(send(verb::get, "/v1/sessions/streamed")["tokens"],
            send(verb::get, "/v1/sessions/whole")["tokens"]);
}

TEST_F(SessionsOverHttp, WhoSaysThatItIsOverIsBelieved) {
  const auto bytes = [&] { return engine_->prompt_cache_statistics().bytes; };
  const std::uint64_t before = bytes();
  chat({{"x-session-id", "a"}});
  EXPECT_GT(bytes(), before);
  chat({{"X-Dynamo-Session-ID", "a"}, {"X-Dynamo-Session-Final", "true"}});
  EXPECT_EQ(bytes(), before);
  EXPECT_TRUE(list().empty());
  const json refused = chat({{"X-Dynamo-Session-Final", "true"}}, 400);
  EXPECT_THAT(refused["error"]["message"], HasSubstr("expected X-Dynamo-Session-ID"));
  chat({{"X-Dynamo-Session-ID", "a"}, {"X-Dynamo-Session-Final", "perhaps"}}, 400);
  for (const char* const field : {"X-Session-ID", "X-Dynamo-Parent-Session-ID"}) {
    const json bad = chat({{field, "of two words"}}, 400);
    EXPECT_EQ(bad["error"]["param"], field);
  }
}

TEST_F(SessionsOverHttp, IdsSayWhichReplicaMadeThem) {
  service::ServiceOptions options;
  options.sessions.replica_name = "replica-1";
  server_.reset();
  server_ = std::make_unique<test::TestServer>(*engine_, options);
  const std::string id = send(verb::post, "/v1/sessions", json::object())["id"];
  EXPECT_THAT(id, testing::MatchesRegex("sess-replica-1_[0-9a-f]{32}"));
  const json fork = send(verb::post, "/v1/sessions/" + id + "/fork", json::object());
  EXPECT_THAT(fork["id"].get<std::string>(), testing::StartsWith("sess-replica-1_"));
  send(verb::delete_, "/v1/sessions/" + id);
  EXPECT_THAT(send(verb::get, "/v1/sessions/" + id, nullptr, 404)["error"]["message"],
              HasSubstr(", made by replica 'replica-1'"));
}

TEST_F(SessionsOverHttp, SessionsAreMadeForkedAndEnded) {
  const json made = send(
      verb::post, "/v1/sessions",
      {{"label", "mine"}, {"decoding", "plain"}, {"evicted", "drop"}, {"sink", 4}, {"window", 64}});
  EXPECT_EQ(made["evicted"], "drop");
  EXPECT_EQ(made["window"], 64);
  const std::string id = made["id"];
  EXPECT_THAT(id, testing::MatchesRegex("sess-[0-9a-f]+"));
  const json fork = send(verb::post, "/v1/sessions/" + id + "/fork", {{"session_id", "branch"}});
  EXPECT_EQ(fork["parent"], id);
  EXPECT_EQ(fork["decoding"], "plain");
  EXPECT_EQ(list().size(), 2U);
  const json ended = send(verb::delete_, "/v1/sessions/" + id);
  EXPECT_EQ(ended["deleted"], true);
  send(verb::get, "/v1/sessions/" + id, nullptr, 404);
  send(verb::delete_, "/v1/sessions/" + id, nullptr, 404);
  send(verb::post, "/v1/sessions/branch/sing", json::object(), 404);
  const json refused = send(verb::post, "/v1/sessions", {{"decoding", "fast"}}, 400);
  EXPECT_THAT(refused["error"]["message"], HasSubstr("expected auto, plain or speculative"));
  EXPECT_THAT(send(verb::post, "/v1/sessions", {{"ttl", 5}}, 400)["error"]["message"],
              HasSubstr("ttl: expected no such field"));
}

TEST_F(SessionsOverHttp, KeysSeeTheirOwnAlone) {
  const auto ann = wire::make_key("ann").value();
  const auto bob = wire::make_key("bob").value();
  const std::string file = testing::TempDir() + "sessions.keys";
  std::ofstream(file) << ann.line << "\n" << bob.line << "\n";
  wire::HttpOptions options;
  options.keys_file = file;
  server_ = std::make_unique<test::TestServer>(*engine_, service::ServiceOptions(), options);
  const auto as = [](const wire::NewKey& key, Fields more = {}) {
    more.emplace_back("Authorization", "Bearer " + key.key);
    return more;
  };
  chat(as(ann, {{"x-session-id", "a"}}));
  send(verb::get, "/v1/sessions/a", nullptr, 200, as(ann));
  send(verb::get, "/v1/sessions/a", nullptr, 404, as(bob));
  send(verb::delete_, "/v1/sessions/a", nullptr, 404, as(bob));
  EXPECT_TRUE(send(verb::get, "/v1/sessions", nullptr, 200, as(bob))["data"].empty());
  chat(as(bob, {{"x-session-id", "a"}}), 200, {{"max_tokens", 1}});
  EXPECT_NE(send(verb::get, "/v1/sessions/a", nullptr, 200, as(bob))["tokens"],
            send(verb::get, "/v1/sessions/a", nullptr, 200, as(ann))["tokens"]);
  send(verb::get, "/v1/sessions/a", nullptr, 401);
}

}  // namespace
}  // namespace kakeya::sessions
