// Whoever asks has what is theirs, and nobody else has: by keys, and by addresses behind a proxy.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "runtime/demo_sessions.h"
#include "wire/http/http_client.h"
#include "wire/http/keys.h"
#include "wire/http/test_server.h"

namespace kakeya::wire {
namespace {

using nlohmann::json;
using test::HttpClient;
using test::http::verb;

class Clients : public testing::Test {
 protected:
  Clients() {
    EngineOptions options = test::demo_options("none");
    options.session.context = 4096;
    options.session.grow = true;
    options.prompt_cache_bytes = std::uint64_t{64} << 20;
    engine_ = test::open_engine(options);
  }
  ~Clients() override { std::filesystem::remove(keys_path_); }

  void start(const HttpOptions& http = {}, const service::ServiceOptions& options = {}) {
    server_.reset();
    server_ = std::make_unique<test::TestServer>(*engine_, options, http);
  }
  // `more`: what stands behind the hash of each key.
  void start_with_keys(const std::string& more = "") {
    std::ofstream file(keys_path_);
    for (const char* const name : {"ann", "bob"}) {
      const NewKey made = make_key(name).value();
      keys_[name] = made.key;
      file << made.line << more << "\n";
    }
    file.close();
    start({.keys_file = keys_path_});
  }

  using Fields = std::vector<std::pair<std::string, std::string>>;
  json send(const Fields& fields,
            verb verb,
            const std::string& path,
            const json& body = nullptr,
            unsigned status = 200) const {
    HttpClient client(server_->port());
    test::HttpResponse::fields_type header;
    for (const auto& [name, value] : fields) header.insert(name, value);
    client.send(header, verb, path, body.is_null() ? "" : body.dump());
    const auto response = client.receive();
    EXPECT_EQ(response.result_int(), status) << path << " " << response.body();
    return json::parse(response.body(), nullptr, false);
  }
  Fields key_of(const std::string& name) const {
    return {{"Authorization", "Bearer " + keys_.at(name)}};
  }
  static json chat(const std::string& text, const json& more = json::object()) {
    json body = {{"model", "demo"},
                 {"messages", json::array({{{"role", "user"}, {"content", text}}})},
                 {"max_tokens", 1},
                 {"temperature", 0}};
    body.update(more);
    return body;
  }

  const std::string keys_path_ =
      testing::TempDir() + "kakeya_clients_" + std::to_string(::getpid());
  std::map<std::string, std::string> keys_;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<test::TestServer> server_;
};

const json kResponse = {{"model", "demo"}, {"input", "secret"}, {"max_output_tokens", 1}};

TEST_F(Clients, NoTwoServersMakeOneIdTwice) {
  std::set<std::string> ids;
  for (int start_of_one_second = 0; start_of_one_second < 2; ++start_of_one_second) {
    start();
    ids.insert(send({}, verb::post, "/v1/responses", kResponse)["id"]);
    ids.insert(send({}, verb::post, "/v1/chat/completions", chat("a"))["id"]);
    ids.insert(send({}, verb::post, "/v1/messages", chat("a"))["id"]);
    ids.insert(send({}, verb::post, "/v1/sessions", json::object())["id"]);
  }
  EXPECT_EQ(ids.size(), 8U) << testing::PrintToString(ids);
  for (const std::string& id : ids) {
    EXPECT_THAT(id, testing::MatchesRegex("[a-z]+[-_][0-9a-f]{32}"));
  }
}

TEST_F(Clients, BehindATrustedProxyAreToldApart) {
  start({.trusted_proxies = {"127.0.0.1"}});
  const Fields ann = {{"X-Forwarded-For", "203.0.113.1"}};
  const Fields bob = {{"X-Forwarded-For", "203.0.113.1"}, {"X-Forwarded-For", "203.0.113.2"}};
  const std::string id = send(ann, verb::post, "/v1/responses", kResponse)["id"];
  const std::string path = "/v1/responses/" + id;
  send(ann, verb::get, path);
  send(bob, verb::get, path, nullptr, 404);
  send({}, verb::get, path, nullptr, 404);
  send(bob, verb::delete_, path, nullptr, 404);
  json next = kResponse;
  next["previous_response_id"] = id;
  send(bob, verb::post, "/v1/responses", next, 404);
  send({{"Forwarded", "for=\"203.0.113.1:80\""}}, verb::get, path);
  send({{"x-session-id", "a"}, ann[0]}, verb::post, "/v1/chat/completions", chat("a"));
  send(ann, verb::get, "/v1/sessions/a");
  send(bob, verb::get, "/v1/sessions/a", nullptr, 404);
}

TEST_F(Clients, NobodyElseIsBelieved) {
  start({.trusted_proxies = {"10.0.0.0/8"}});
  const Fields forged = {{"X-Forwarded-For", "203.0.113.1"}, {"Forwarded", "for=203.0.113.1"}};
  const std::string id = send(forged, verb::post, "/v1/responses", kResponse)["id"];
  send({}, verb::get, "/v1/responses/" + id);
}

std::string long_text() {
  std::string text = "The secret number is";
  for (int i = 0; i < 100; ++i) text += " " + std::to_string(i * 37 % 1000);
  return text;
}

TEST_F(Clients, AKeySeesNothingOfWhatAnotherHasAsked) {
  start_with_keys();
  const auto cached = [&](const std::string& name, const json& more = json::object()) {
    const json body = chat(long_text(), more);
    const json answer = send(key_of(name), verb::post, "/v1/chat/completions", body);
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(cached("ann"), 0);
  EXPECT_GT(cached("ann"), 100);
  EXPECT_EQ(cached("bob"), 0);
  EXPECT_GT(cached("bob"), 100);
  const json salted = {{"cache_salt", "s"}};
  EXPECT_EQ(cached("ann", salted), 0);
  EXPECT_GT(cached("ann", salted), 100);
  EXPECT_EQ(cached("ann", {{"cache_salt", "t"}}), 0);
  EXPECT_EQ(cached("bob", salted), 0);
}

TEST_F(Clients, AreAsUrgentAsTheirKeyMayBe) {
  const auto ask = [&](const Fields& fields, int priority, unsigned status) {
    const json answer = send(fields, verb::post, "/v1/chat/completions",
                             chat("a", {{"priority", priority}}), status);
    const json vector = send(fields, verb::post, "/v1/embeddings",
                             {{"input", "a"}, {"priority", priority}}, status);
    if (status == 200) return;
    EXPECT_EQ(answer["error"]["param"], "priority");
    EXPECT_EQ(vector["error"]["param"], "priority");
  };
  start_with_keys();
  ask(key_of("ann"), 0, 200);
  ask(key_of("ann"), 1000, 200);
  ask(key_of("ann"), -1, 400);
  ask(key_of("ann"), -2147483647, 400);
  start_with_keys(":priority=-10");
  ask(key_of("ann"), -10, 200);
  ask(key_of("ann"), -11, 400);
  start();
  ask({}, -1000, 200);
}

TEST_F(Clients, MayShareOnePromptCache) {
  start_with_keys();
  start({.keys_file = keys_path_}, {.shared_prompt_cache = true});
  const auto cached = [&](const std::string& name) {
    const json answer = send(key_of(name), verb::post, "/v1/chat/completions", chat(long_text()));
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(cached("ann"), 0);
  EXPECT_GT(cached("bob"), 100);
}

}  // namespace
}  // namespace kakeya::wire
