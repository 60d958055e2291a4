// The prefix cache as clients of the server meet it: a conversation pays for its new turn alone,
// and answers, memory and neighbours are as without it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/demo_sessions.h"
#include "wire/http/http_client.h"
#include "wire/http/test_server.h"

namespace kakeya::wire {
namespace {

namespace http = test::http;
using nlohmann::json;
using test::HttpClient;
using test::HttpResponse;

class PrefixCacheOverHttp : public testing::Test {
 protected:
  void start(std::uint64_t cache_bytes, std::uint64_t memory_limit = std::uint64_t{1} << 30) {
    EngineOptions options = test::demo_options("auto");
    options.session.context = 4096;
    options.session.grow = true;
    options.memory_limit = memory_limit;
    options.prompt_cache_bytes = cache_bytes;
    server_.reset();
    engine_ = test::open_engine(options);
    server_ = std::make_unique<test::TestServer>(*engine_, service::ServiceOptions());
  }

  static std::string long_text(int seed) {
    std::string text = "Remember these numbers:";
    for (int i = 0; i < 300; ++i) text += " " + std::to_string((i * 37 + seed) % 1000);
    return text;
  }

  json ask(const json& messages) const {
    const json body = {{"model", "demo"},          {"messages", messages}, {"max_tokens", 16},
                       {"return_token_ids", true}, {"temperature", 0},     {"seed", 1}};
    return json::parse(HttpClient(server_->port()).post(body).body());
  }

  // The turns of a conversation, as answers.
  std::vector<json> converse(const std::string& system, int turns) const {
    json messages = json::array({{{"role", "system"}, {"content", system}}});
    std::vector<json> answers;
    for (int turn = 0; turn < turns; ++turn) {
      messages.push_back({{"role", "user"}, {"content", "Say " + std::to_string(turn) + "."}});
      answers.push_back(ask(messages));
      messages.push_back(
          {{"role", "assistant"}, {"content", answers.back()["choices"][0]["message"]["content"]}});
    }
    return answers;
  }

  std::shared_ptr<Engine> engine_;
  std::unique_ptr<test::TestServer> server_;
};

std::int64_t prompt_tokens(const json& answer) {
  return answer["usage"]["prompt_tokens"];
}

std::int64_t cached_tokens(const json& answer) {
  return answer["usage"]["prompt_tokens_details"]["cached_tokens"];
}

TEST_F(PrefixCacheOverHttp, AConversationPaysForItsNewTurnAlone) {
  start(0);
  const std::vector<json> plain = converse(long_text(1), 4);
  for (const json& answer : plain) EXPECT_EQ(cached_tokens(answer), 0) << answer;

  start(EngineOptions::kAutoPromptCache);
  std::int64_t rows = 0;
  const std::vector<json> cached = converse(long_text(1), 4);
  for (std::size_t turn = 0; turn < plain.size(); ++turn) {
    EXPECT_EQ(cached[turn]["choices"], plain[turn]["choices"]) << turn;
    rows += prompt_tokens(cached[turn]) - cached_tokens(cached[turn]);
    if (turn == 0) {
      EXPECT_EQ(cached_tokens(cached[turn]), 0);
      continue;
    }
    // All but the new question and, at most, the answer before it.
    EXPECT_GE(cached_tokens(cached[turn]), prompt_tokens(cached[turn - 1])) << turn;
    EXPECT_GT(prompt_tokens(cached[0]), 600);
  }
  EXPECT_EQ(server_->statistics().prompt_rows, rows);
  EXPECT_LT(rows, prompt_tokens(cached[0]) + 3 * 64);

  const std::string metrics = HttpClient(server_->port()).get("/metrics").body();
  EXPECT_NE(metrics.find("kakeya_prompt_cache_hits_total 3\n"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("kakeya_prompt_cache_lookups_total 4\n"), std::string::npos);
  EXPECT_EQ(metrics.find("kakeya_prompt_cache_bytes 0\n"), std::string::npos);
}

// Routers, autoscalers and dashboards that know vLLM ask for these.
TEST_F(PrefixCacheOverHttp, IsCountedAsVllmCountsIt) {
  start(EngineOptions::kAutoPromptCache);
  std::int64_t prompts = 0, cached = 0, generated = 0;
  for (const json& answer : converse(long_text(1), 3)) {
    prompts += prompt_tokens(answer);
    cached += cached_tokens(answer);
    generated += answer["usage"]["completion_tokens"].get<std::int64_t>();
  }
  ASSERT_GT(cached, 0);
  const std::string metrics = HttpClient(server_->port()).get("/metrics").body();
  const auto expect = [&](const std::string& name, const std::string& label, std::int64_t value) {
    const std::string line =
        "\nvllm:" + name + "{model_name=\"demo\"" + label + "} " + std::to_string(value) + "\n";
    EXPECT_NE(metrics.find(line), std::string::npos) << line << metrics;
  };
  expect("prompt_tokens_total", "", prompts);
  expect("prefix_cache_queries_total", "", prompts);
  expect("prefix_cache_hits_total", "", cached);
  expect("generation_tokens_total", "", generated);
  expect("num_preemptions_total", "", 0);
  expect("time_to_first_token_seconds_count", "", 3);
  expect("time_to_first_token_seconds_bucket", ",le=\"+Inf\"", 3);
  EXPECT_NE(metrics.find("\n# TYPE vllm:inter_token_latency_seconds histogram\n"),
            std::string::npos);
}

TEST_F(PrefixCacheOverHttp, QuestionsAboutOneTextShareIt) {
  start(EngineOptions::kAutoPromptCache);
  // The first two leave each other far before their ends; what both begin with is kept then.
  const std::string text = long_text(3);
  for (int question = 0; question < 3; ++question) {
    const json answer =
        ask(json::array({{{"role", "user"}, {"content", text + long_text(10 * question)}}}));
    EXPECT_EQ(cached_tokens(answer) > 500, question == 2) << answer["usage"];
  }
}

TEST_F(PrefixCacheOverHttp, AStreamSaysWhatWasCachedToo) {
  start(EngineOptions::kAutoPromptCache);
  json body = {{"model", "demo"},
               {"messages", json::array({{{"role", "user"}, {"content", long_text(5)}}})},
               {"max_tokens", 4},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}};
  for (const bool again : {false, true}) {
    const auto events = test::event_texts(HttpClient(server_->port()).post(body).body());
    const json usage = json::parse(events[events.size() - 2]);
    EXPECT_EQ(cached_tokens(usage) > 500, again) << usage;
  }
}

TEST_F(PrefixCacheOverHttp, TheLogCountsSeveralPromptsTogether) {
  const std::string path = testing::TempDir() + "prefix_cache_log";
  std::filesystem::remove(path);
  start(EngineOptions::kAutoPromptCache);
  server_.reset();
  server_ = std::make_unique<test::TestServer>(*engine_, service::ServiceOptions{.log_file = path});
  const json body = {{"prompt", {long_text(1), "short"}}, {"max_tokens", 2}, {"n", 2}};
  json usage;
  for (int i = 0; i < 2; ++i) {
    HttpClient client(server_->port());
    client.send({}, http::verb::post, "/v1/completions", body.dump());
    usage = json::parse(client.receive().body());
  }
  server_.reset();  // which writes what waits
  EXPECT_GT(cached_tokens(usage), 300) << usage;
  EXPECT_LT(cached_tokens(usage), prompt_tokens(usage));
  std::ifstream file(path);
  json last;
  for (std::string line; std::getline(file, line);) {
    const json entry = json::parse(line);
    if (entry["event"] == "request") last = entry;
  }
  EXPECT_EQ(last["cached_tokens"], cached_tokens(usage)) << last;
}

// In a limit that the cache would fill alone, requests that come together are answered as without
// it, and none is refused.
TEST_F(PrefixCacheOverHttp, TheCacheGivesWayToRequests) {
  start(0);
  const std::uint64_t bytes = engine_->footprint().total_reserved();
  const std::uint64_t limit = bytes + (std::uint64_t{24} << 20);
  std::vector<json> plain;
  for (int seed = 0; seed < 6; ++seed) plain.push_back(converse(long_text(seed), 1)[0]);

  start(std::uint64_t{1} << 40, limit);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::thread> clients;
    std::vector<json> answers(plain.size());
    for (std::size_t i = 0; i < plain.size(); ++i) {
      clients.emplace_back([&, i] { answers[i] = converse(long_text(static_cast<int>(i)), 1)[0]; });
    }
    for (std::thread& client : clients) client.join();
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_EQ(answers[i]["choices"], plain[i]["choices"]) << answers[i];
    }
    EXPECT_LE(engine_->footprint().total_reserved(), limit);
  }
}

}  // namespace
}  // namespace kakeya::wire
