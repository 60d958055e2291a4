// Requests as agents and programs send them (tests/data/clients, made from what is publicly known
// of them): each is answered.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/demo_sessions.h"
#include "service/grammar/grammar_engine.h"
#include "wire/http/http_client.h"
#include "wire/http/test_server.h"

namespace kakeya::wire {
namespace {

using nlohmann::json;

// The request, for an answer that takes no long time.
json shortened(json body, const std::string& path) {
  constexpr int kTokens = 8;
  if (path.starts_with("/v1/responses")) {
    body["max_output_tokens"] = kTokens;
  } else if (path.starts_with("/api/")) {
    body["options"]["num_predict"] = kTokens;
  } else if (path.find("count_tokens") == std::string::npos) {
    body.erase("max_completion_tokens");
    body["max_tokens"] = kTokens;
  }
  return body;
}

TEST(RecordedRequests, AreAnswered) {
  if (!service::has_grammars()) GTEST_SKIP() << "built without xgrammar";
  EngineOptions options = test::demo_options("none");
  options.session.context = 4096;  // as they ask for
  const auto engine = test::open_engine(options);
  const test::TestServer server(*engine, service::ServiceOptions());
  int sent = 0;
  for (const auto& file : std::filesystem::directory_iterator(KAKEYA_TEST_DATA "/clients")) {
    for (const json& request : json::parse(std::ifstream(file.path()))) {
      const std::string path = request["path"];
      test::HttpClient client(server.port());
      client.send({}, test::http::verb::post, path, shortened(request["body"], path).dump());
      const auto response = client.receive();
      EXPECT_EQ(response.result_int(), 200u) << file.path() << request << response.body();
      EXPECT_EQ(response.body().find("\"error\":{"), std::string::npos) << response.body();
      ++sent;
    }
  }
  EXPECT_GE(sent, 14);
}

}  // namespace
}  // namespace kakeya::wire
