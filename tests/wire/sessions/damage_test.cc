// Databases that are damaged while a server has them open: clients are told so, without a path, and
// what needs no database goes on.
#include <gmock/gmock.h>

#include <fstream>
#include <numeric>
#include <sstream>

#include "formats/scratch_files.h"
#include "runtime/demo_sessions.h"
#include "service/sessions/damaged_files.h"
#include "wire/http/http_client.h"
#include "wire/http/test_server.h"

namespace kakeya::sessions {
namespace {

using nlohmann::json;
using test::HttpClient;
using test::http::verb;
using testing::HasSubstr;

constexpr const char* kCatalogueWords = "the catalogue of sessions is damaged";
constexpr const char* kStoreWords = "the store of responses is damaged";
constexpr const char* kOwner = "127.0.0.1";

class DamagedSessionsOverHttp : public testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options = test::demo_options("none");
    options.session.grow = true;
    engine_ = test::open_engine(options);
    start();
  }

  void start() {
    server_.reset();
    service::ServiceOptions options;
    options.sessions.folder = folder_.path("kept");
    options.log_file = folder_.path("log");
    server_ = std::make_unique<test::TestServer>(*engine_, options);
  }
  // More than SQLite holds in memory, so that it must be read again; then all of it is damaged.
  void damage_catalogue() {
    std::vector<TokenId> ids(2'000'000);
    std::iota(ids.begin(), ids.end(), 0);
    ASSERT_TRUE(server_->service().sessions().put(kOwner, {.id = "kept"}, ids));
    start();
    test::overwrite_pages(folder_.path("kept/sessions.sqlite"));
  }
  void damage_store() {
    for (const char* const id : {"resp_1", "resp_2", "resp_3"}) {
      ASSERT_TRUE(
          server_->service().server().kept_texts().put(kOwner, id, std::string(4 << 20, 'a')));
    }
    start();
    test::overwrite_pages(folder_.path("kept/texts.sqlite"));
  }

  using Fields = std::vector<std::pair<std::string, std::string>>;
  // The body of a reply, in which no path of the server's may stand.
  std::string send(verb verb,
                   const std::string& path,
                   const json& body,
                   unsigned status,
                   const Fields& fields = {}) {
    HttpClient client(server_->port());
    test::HttpResponse::fields_type header;
    for (const auto& [name, value] : fields) header.set(name, value);
    client.send(header, verb, path, body.is_null() ? "" : body.dump());
    const auto response = client.receive();
    EXPECT_EQ(response.result_int(), status) << path << " " << response.body();
    EXPECT_THAT(response.body(), testing::Not(HasSubstr("sqlite")));
    EXPECT_THAT(response.body(), testing::Not(HasSubstr(folder_.root())));
    return response.body();
  }
  std::string chat(const Fields& fields, unsigned status = 200, bool stream = false) {
    return send(verb::post, "/v1/chat/completions",
                {{"messages", {{{"role", "user"}, {"content", "Count from 5 to 12."}}}},
                 {"temperature", 0},
                 {"stream", stream}},
                status, fields);
  }
  std::string respond(const json& more, unsigned status = 200) {
    json body = {{"input", "Count from 5 to 12."}, {"temperature", 0}};
    body.update(more);
    return send(verb::post, "/v1/responses", body, status);
  }
  json health() { return json::parse(send(verb::get, "/health", nullptr, 200)); }
  // The log, once the server has gone.
  std::string log() {
    server_.reset();
    std::ifstream file(folder_.path("log"));
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  ScratchFolder folder_;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<test::TestServer> server_;
};

TEST_F(DamagedSessionsOverHttp, ACatalogueIsToldToClientsHealthAndLog) {
  ASSERT_NO_FATAL_FAILURE(damage_catalogue());
  EXPECT_EQ(health()["status"], "ok");
  for (const bool stream : {false, true}) {
    EXPECT_THAT(chat({{"x-session-id", "kept"}}, 500, stream), HasSubstr(kCatalogueWords));
  }
  EXPECT_THAT(send(verb::get, "/v1/sessions", nullptr, 500), HasSubstr(kCatalogueWords));
  EXPECT_THAT(send(verb::get, "/v1/sessions/kept", nullptr, 500), HasSubstr(kCatalogueWords));
  EXPECT_THAT(send(verb::delete_, "/v1/sessions/kept", nullptr, 500), HasSubstr(kCatalogueWords));
  EXPECT_THAT(send(verb::post, "/v1/sessions", json::object(), 500), HasSubstr(kCatalogueWords));
  EXPECT_EQ(health(), (json{{"status", "degraded"}, {"reason", kCatalogueWords}}));
  EXPECT_THAT(send(verb::get, "/metrics", nullptr, 200), HasSubstr("kakeya_damaged_databases 1\n"));
  EXPECT_THAT(send(verb::get, "/livez", nullptr, 200), HasSubstr("ok"));
  EXPECT_THAT(chat({}), HasSubstr("12"));
  const std::string lines = log();
  EXPECT_THAT(lines, HasSubstr("a database failed"));
  EXPECT_THAT(lines, HasSubstr(folder_.path("kept/sessions.sqlite")));
}

TEST_F(DamagedSessionsOverHttp, AStoreOfResponsesIsToldToClientsHealthAndLog) {
  ASSERT_NO_FATAL_FAILURE(damage_store());
  EXPECT_EQ(health()["status"], "ok");
  EXPECT_THAT(send(verb::get, "/v1/responses/resp_1", nullptr, 500), HasSubstr(kStoreWords));
  EXPECT_THAT(send(verb::delete_, "/v1/responses/resp_1", nullptr, 500), HasSubstr(kStoreWords));
  EXPECT_THAT(respond({{"previous_response_id", "resp_1"}, {"store", false}}, 500),
              HasSubstr(kStoreWords));
  for (const bool stream : {false, true}) {
    EXPECT_THAT(respond({{"stream", stream}}, 500),
                HasSubstr("expected a request with store false"));
  }
  EXPECT_EQ(health(), (json{{"status", "degraded"}, {"reason", kStoreWords}}));
  EXPECT_EQ(json::parse(respond({{"store", false}}))["status"], "completed");
  EXPECT_THAT(log(), HasSubstr(folder_.path("kept/texts.sqlite")));
}

TEST_F(DamagedSessionsOverHttp, AServerDoesNotStartOnADamagedFile) {
  for (const char* const name : {"texts.sqlite", "sessions.sqlite"}) {
    start();
    server_.reset();
    const std::string file = folder_.path(std::string("kept/") + name);
    test::overwrite_pages(file);
    const auto service = service::Service::create(
        *engine_, service::ServiceOptions{.sessions = {.folder = folder_.path("kept")}});
    ASSERT_FALSE(service.has_value());
    EXPECT_EQ(service.error().code(), StatusCode::kDataLoss);
    EXPECT_THAT(service.error().message(), testing::StartsWith(file + ": "));
    EXPECT_THAT(service.error().message(), HasSubstr("move " + file + "* away"));
    EXPECT_THAT(service.error().message(), testing::Not(HasSubstr("\n")));
    std::filesystem::remove(file);
  }
}

// A session that finds no place when its answer is there is no reason to refuse that.
TEST_F(DamagedSessionsOverHttp, AnAnswerThatIsThereSaysWhatWasNotKept) {
  service::ServiceOptions options;
  options.sessions.most_sessions = 1;
  server_ = std::make_unique<test::TestServer>(*engine_, options);
  send(verb::post, "/v1/sessions", {{"session_id", "other"}}, 200);
  const Fields session = {{"x-session-id", "one-more"}};
  const json response = json::parse(send(
      verb::post, "/v1/responses", {{"input", "Count."}, {"max_output_tokens", 4}}, 200, session));
  EXPECT_THAT(response["kakeya"]["not_kept"]["session"], HasSubstr("at most 1 open sessions"));
  const json whole = json::parse(chat(session));
  EXPECT_THAT(whole["kakeya"]["not_kept"]["session"], HasSubstr("at most 1 open sessions"));
  EXPECT_THAT(chat(session, 200, true), HasSubstr(R"("kakeya":{"not_kept":{"session":)"));
  json body = {{"model", "demo"},
               {"messages", {{{"role", "user"}, {"content", "Count from 5 to 12."}}}}};
  for (const bool stream : {false, true}) {
    body["stream"] = stream;
    EXPECT_THAT(send(verb::post, "/api/chat", body, 200, session),
                HasSubstr(R"("kakeya":{"not_kept":{"session":)"));
  }
  body["max_tokens"] = 16;
  for (const bool stream : {false, true}) {
    body["stream"] = stream;
    EXPECT_THAT(send(verb::post, "/v1/messages", body, 200, session),
                HasSubstr(R"("kakeya":{"not_kept":{"session":)"));
  }
  EXPECT_FALSE(json::parse(chat({})).contains("kakeya"));
}

}  // namespace
}  // namespace kakeya::sessions
