// Several models of one server: which of them answers, and how they come and go within the memory.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/temporary_folder.h"
#include "runtime/demo_sessions.h"
#include "service/model_pool.h"
#include "wire/http/http_client.h"
#include "wire/http/test_server.h"

namespace kakeya::wire {
namespace {

namespace http = test::http;
using nlohmann::json;
using service::LoadedModel;
using service::ModelPool;
using service::ModelState;
using service::PooledModel;
using service::PoolOptions;
using test::HttpClient;
using test::HttpResponse;
using testing::HasSubstr;

constexpr std::uint64_t kShare = std::uint64_t{64} << 20;

// Tells models apart that have the same weights: each hears another question.
std::string template_of(const std::string& name) {
  const std::string demo =
      (std::stringstream() << std::ifstream(KAKEYA_DEMO_MODEL "/chat_template.jinja").rdbuf())
          .str();
  return fmt::format(
             "{{% set messages = [{{'role': 'user', 'content': 'Count from {0} to 9{0}.'}}] %}}",
             static_cast<int>(name.front() - 'a') + 5) +
         demo;
}

class ModelsOverHttp : public testing::Test {
 protected:
  // Models of these names, each of which takes kShare.
  void start_named(const std::vector<std::string>& names, PoolOptions options) {
    std::vector<PooledModel> models;
    for (const std::string& name : names) models.push_back(model(name));
    start(std::move(models), options);
  }

  void start(std::vector<PooledModel> models, PoolOptions options) {
    pool_ = ModelPool::create(state_, std::move(models), options).value();
    const Dialect openai = openai::dialect();
    server_ =
        HttpServer::start(*pool_, {.port = 0},
                          {openai, anthropic::dialect(), lm_studio::dialect(openai.error_body),
                           ollama::dialect(), sessions::dialect(openai.error_body)})
            .value();
  }

  PooledModel model(const std::string& name) {
    return {.name = name, .memory = kShare, .load = [this, name] { return load(name); }};
  }

  Result<LoadedModel> load(const std::string& name) {
    EXPECT_EQ(loading_++, 0) << "one at a time";
    ++loads_[name];
    // Models that were given up have given back its memory by now.
    const auto is_there = [](const auto& engine) { return !engine.second.expired(); };
    most_ = std::max<std::int64_t>(most_, std::ranges::count_if(engines_, is_there) + 1);
    std::unique_lock lock(gate_);
    Result<LoadedModel> loaded = open(name);
    if (loaded) engines_[name] = loaded->engine;
    --loading_;
    return loaded;
  }

  Result<LoadedModel> open(const std::string& name) {
    if (failure_) return Unexpected(*failure_);
    EngineOptions options = test::demo_options("auto");
    options.memory_limit = kShare;
    options.session.context = 512;
    options.session.grow = true;
    options.chat_template = folder_.path() + "/" + name;
    std::ofstream(options.chat_template) << template_of(name);
    LoadedModel loaded;
    KAKEYA_ASSIGN_OR_RETURN(loaded.engine, Engine::open(options));
    service::ServiceOptions service = {.model_name = name, .aliases = {"my-" + name}};
    service.sessions.folder = folder_.path() + "/sessions-" + name;
    KAKEYA_ASSIGN_OR_RETURN(loaded.service,
                            service::Service::create(*loaded.engine, service, state_));
    return loaded;
  }

  HttpResponse send(http::verb verb, const std::string& path, const json& body = {}) const {
    HttpClient client(server_->port());
    client.send({}, verb, path, body.is_null() ? "" : body.dump());
    return client.receive();
  }
  HttpResponse ask(const std::string& name, int max_tokens = 6) const {
    return send(http::verb::post, "/v1/chat/completions",
                {{"model", name},
                 {"messages", json::array({{{"role", "user"}, {"content", "Count from 5."}}})},
                 {"max_tokens", max_tokens},
                 {"temperature", 0}});
  }
  static std::string text_of(const HttpResponse& response) {
    EXPECT_EQ(response.result_int(), 200u) << response.body();
    return json::parse(response.body())["choices"][0]["message"]["content"];
  }
  ModelState state_of(const std::string& name) const { return pool_->find(name).value().state; }
  void wait_until(const std::string& name, ModelState state) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (state_of(name) != state && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_EQ(state_of(name), state);
  }

  TemporaryFolder folder_ = TemporaryFolder::create().value();
  std::shared_ptr<service::ServerState> state_ = service::ServerState::open({}).value();
  std::atomic<int> loading_ = 0;
  std::int64_t most_ = 0;  // models that were loaded together
  std::map<std::string, int> loads_;
  std::map<std::string, std::weak_ptr<Engine>> engines_;
  std::mutex gate_;  // held: models take long to load
  std::optional<Error> failure_;
  std::unique_ptr<ModelPool> pool_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(ModelsOverHttp, AnswerAsEachDoesAloneWithMemoryForTwo) {
  const std::vector<std::string> names = {"a", "b", "c"};
  std::map<std::string, std::string> alone;
  for (const std::string& name : names) {
    start_named({name}, {.memory = kShare});
    alone[name] = text_of(ask(name));
    server_.reset();
    pool_.reset();
  }
  EXPECT_NE(alone["a"], alone["b"]);
  loads_.clear();
  most_ = 0;
  start_named(names, {.memory = 2 * kShare});
  std::vector<std::future<void>> clients;
  for (unsigned client = 0; client < 8; ++client) {
    clients.push_back(std::async(std::launch::async, [&, client] {
      std::mt19937 random(client);
      for (int i = 0; i < 8; ++i) {
        const std::string& name = names[random() % names.size()];
        EXPECT_EQ(text_of(ask(name)), alone[name]) << name;
      }
    }));
  }
  for (std::future<void>& client : clients) client.get();
  EXPECT_EQ(most_, 2);
  for (const std::string& name : names) EXPECT_GE(loads_[name], 1) << name;
  EXPECT_GE(loads_["a"] + loads_["b"] + loads_["c"], 4) << "none was given up";
}

TEST_F(ModelsOverHttp, AreNamedInBodyQueryAndAliases) {
  PooledModel first = model("a");
  first.aliases = {"my-a"};
  std::vector<PooledModel> models;
  models.push_back(std::move(first));
  models.push_back(model("b"));
  start(std::move(models), {.memory = 2 * kShare});
  const std::string of_a = text_of(ask("a"));
  EXPECT_EQ(text_of(ask("my-a")), of_a);
  EXPECT_EQ(json::parse(ask("my-a").body())["model"], "a");
  EXPECT_NE(text_of(ask("b")), of_a);
  EXPECT_THAT(send(http::verb::get, "/props?model=b").body(), HasSubstr(R"("model":"b")"));
  EXPECT_THAT(send(http::verb::get, "/props").body(), HasSubstr(R"("model":"a")"));
  const HttpResponse unknown = ask("nobody");
  EXPECT_EQ(unknown.result_int(), 404u);
  EXPECT_THAT(unknown.body(), HasSubstr("expected a or b, got 'nobody'"));
  // Query and body must agree.
  const json body = {{"model", "b"}, {"prompt", "5"}, {"max_tokens", 1}};
  EXPECT_EQ(send(http::verb::post, "/v1/completions?model=a", body).result_int(), 404u);
  EXPECT_EQ(send(http::verb::post, "/v1/completions?model=b", body).result_int(), 200u);
}

TEST_F(ModelsOverHttp, AreListedLoadedAndGivenUp) {
  start_named({"a", "b"}, {.memory = 2 * kShare});
  const auto states = [&] {
    std::string all;
    const json list = json::parse(send(http::verb::get, "/v1/models").body());
    for (const json& model : list["data"]) {
      all +=
          model["id"].get<std::string>() + "=" + model["status"]["value"].get<std::string>() + " ";
    }
    return all;
  };
  EXPECT_EQ(states(), "a=unloaded b=unloaded ");
  EXPECT_EQ(send(http::verb::post, "/models/load", {{"model", "b"}}).result_int(), 200u);
  EXPECT_EQ(states(), "a=unloaded b=loaded ");
  const json running = json::parse(send(http::verb::get, "/api/ps").body())["models"];
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0]["name"], "b");
  EXPECT_EQ(json::parse(send(http::verb::get, "/api/tags").body())["models"].size(), 2u);
  const std::string metrics = send(http::verb::get, "/metrics").body();
  EXPECT_THAT(metrics, HasSubstr(R"(kakeya_requests_running{model_name="b"} 0)"));
  EXPECT_THAT(metrics, Not(HasSubstr(R"(model_name="a")")));
  EXPECT_EQ(send(http::verb::post, "/models/unload", {{"model", "b"}}).result_int(), 200u);
  wait_until("b", ModelState::kUnloaded);
  EXPECT_EQ(send(http::verb::post, "/models/unload", {{"model", "x"}}).result_int(), 404u);
  EXPECT_EQ(send(http::verb::get, "/health").result_int(), 200u) << "none is loaded";
}

TEST_F(ModelsOverHttp, AreLoadedAndGivenUpByLmStudiosClients) {
  start_named({"a", "b"}, {.memory = 2 * kShare});
  const auto instances_of_b = [&] {
    const json list = json::parse(send(http::verb::get, "/api/v1/models").body())["models"];
    EXPECT_EQ(list.size(), 2u);
    EXPECT_EQ(list[1]["key"], "b");
    return list[1]["loaded_instances"];
  };
  const auto load = [&](json body) {
    body["model"] = "b";
    return send(http::verb::post, "/api/v1/models/load", body);
  };
  EXPECT_TRUE(instances_of_b().empty());
  const json loaded =
      json::parse(load({{"context_length", 256}, {"echo_load_config", true}}).body());
  EXPECT_EQ(loaded["status"], "loaded");
  EXPECT_EQ(loaded["load_config"]["context_length"], 512) << "of the server";
  EXPECT_GT(loaded["load_time_seconds"], 0.0);
  ASSERT_EQ(instances_of_b().size(), 1u);
  EXPECT_EQ(instances_of_b()[0]["id"], loaded["instance_id"]);
  EXPECT_THAT(load({{"context_length", 513}}).body(),
              HasSubstr("context_length: expected at most 512, the context of the server"));
  EXPECT_THAT(load({{"num_experts", 2}}).body(), HasSubstr("num_experts: expected nothing"));
  const auto unload = [&](const json& body) {
    return send(http::verb::post, "/api/v1/models/unload", body).result_int();
  };
  EXPECT_EQ(unload({{"model", "b"}}), 400u);
  EXPECT_EQ(unload({{"instance_id", "x"}}), 404u);
  EXPECT_EQ(unload({{"instance_id", loaded["instance_id"]}}), 200u);
  wait_until("b", ModelState::kUnloaded);
  // Other routes of LM Studio are refused as its clients read it, not as Ollama's do.
  EXPECT_THAT(send(http::verb::get, "/api/v1/chat").body(), HasSubstr(R"("error":{"message")"));
}

TEST_F(ModelsOverHttp, GoBehindAnAnswerThatAsksForIt) {
  start_named({"a", "b"}, {.memory = 2 * kShare});
  json body = {{"model", "b:latest"}, {"prompt", "5"}, {"stream", false}};
  const auto answered = [&] {
    return json::parse(send(http::verb::post, "/api/generate", body).body());
  };
  body["options"] = {{"num_predict", 2}};
  EXPECT_EQ(answered()["eval_count"], 2);
  EXPECT_EQ(state_of("b"), ModelState::kLoaded);
  body["keep_alive"] = 0;
  EXPECT_EQ(answered()["eval_count"], 2);
  wait_until("b", ModelState::kUnloaded);
  body["prompt"] = "";
  body["keep_alive"] = "5m";
  EXPECT_EQ(answered()["done_reason"], "load");
  EXPECT_EQ(state_of("b"), ModelState::kLoaded);
  body["keep_alive"] = "0s";
  EXPECT_EQ(answered()["done_reason"], "unload");
  wait_until("b", ModelState::kUnloaded);
}

TEST_F(ModelsOverHttp, ThatCannotBeLoadedAreRefusedUntilTheyCan) {
  start_named({"a", "b"}, {.memory = kShare});
  EXPECT_EQ(ask("a").result_int(), 200u);
  failure_ = Error(StatusCode::kDataLoss, "the file is damaged");
  const HttpResponse refused = ask("b");
  EXPECT_EQ(refused.result_int(), 503u);
  EXPECT_THAT(refused.body(), HasSubstr("b cannot be loaded: the server's log says why"));
  failure_.reset();
  EXPECT_EQ(ask("b").result_int(), 200u);
  EXPECT_EQ(ask("a").result_int(), 200u);
}

TEST_F(ModelsOverHttp, SessionsAreThereWhenTheirModelComesBack) {
  start_named({"a", "b"}, {.memory = kShare});
  const json session = {{"model", "a"}, {"session_id", "mine"}};
  EXPECT_EQ(send(http::verb::post, "/v1/sessions", session).result_int(), 200u);
  EXPECT_EQ(ask("b").result_int(), 200u);
  EXPECT_EQ(state_of("a"), ModelState::kUnloaded);
  EXPECT_EQ(send(http::verb::get, "/v1/sessions/mine?model=a").result_int(), 200u);
  EXPECT_EQ(send(http::verb::get, "/v1/sessions/mine?model=b").result_int(), 404u);
}

TEST_F(ModelsOverHttp, AWaitEndsWithItsDeadlineItsClientAndItsServer) {
  start_named({"a", "b"}, {.memory = kShare});
  std::unique_lock slow(gate_);
  HttpClient gone(server_->port());
  const json body = {{"model", "a"}, {"prompt", "5"}, {"max_tokens", 1}};
  gone.send({}, http::verb::post, "/v1/completions", body.dump());
  wait_until("a", ModelState::kLoading);
  HttpClient late(server_->port());
  http::fields fields;
  fields.set("X-Request-Timeout", "0.1");
  late.send(fields, http::verb::post, "/v1/completions", body.dump());
  const HttpResponse refused = late.receive();
  EXPECT_EQ(refused.result_int(), 504u) << refused.body();
  HttpClient stopped(server_->port());
  fields.clear();
  fields.set(http::field::expect, "100-continue");
  stopped.send(fields, http::verb::post, "/v1/completions", body.dump());
  EXPECT_EQ(stopped.receive().result_int(), 100u) << "it was taken";
  auto stopping = std::async(std::launch::async, [&] { server_->stop(); });
  EXPECT_EQ(stopped.receive().result_int(), 503u);
  slow.unlock();
  stopping.get();
}

TEST_F(ModelsOverHttp, AModelThatIsInUseIsNotGivenUp) {
  start_named({"a", "b"}, {.memory = kShare});
  auto use = pool_->use("a", [] { return true; }).value();
  auto other = std::async(std::launch::async, [&] { return ask("b").result_int(); });
  EXPECT_EQ(other.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  EXPECT_EQ(state_of("a"), ModelState::kLoaded);
  // It takes no further requests: who waits has a turn.
  int looks = 0;
  const auto refused = pool_->use("a", [&] { return ++looks < 5; });
  EXPECT_EQ(refused.error().status, StatusCode::kCancelled);
  use = {};
  EXPECT_EQ(other.get(), 200u);
}

TEST_F(ModelsOverHttp, AreGivenUpWhereTheLimitShrinks) {
  start_named({"a", "b", "c"}, {.memory = 3 * kShare});
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(ask(name).result_int(), 200u);
  auto use = pool_->use("a", [] { return true; }).value();
  EXPECT_TRUE(pool_->set_memory(kShare));
  wait_until("b", ModelState::kUnloaded);
  wait_until("c", ModelState::kUnloaded);
  EXPECT_EQ(state_of("a"), ModelState::kLoaded) << "it answers";
  use = {};
  EXPECT_EQ(ask("b").result_int(), 200u);
  EXPECT_EQ(state_of("a"), ModelState::kUnloaded);
  const Status too_small = pool_->set_memory(kShare - 1);
  ASSERT_FALSE(too_small);
  EXPECT_EQ(too_small.error().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ask("b").result_int(), 200u) << "the limit is as it was";
  EXPECT_TRUE(pool_->set_memory(2 * kShare));
  EXPECT_EQ(ask("a").result_int(), 200u);
  EXPECT_EQ(state_of("b"), ModelState::kLoaded);
}

TEST_F(ModelsOverHttp, IdleModelsGoAndThoseThatStayDoNot) {
  std::vector<PooledModel> models;
  models.push_back(model("a"));
  models.back().stays = models.back().is_preloaded = true;
  models.push_back(model("b"));
  start(std::move(models), {.memory = 2 * kShare, .idle_limit = std::chrono::milliseconds(50)});
  EXPECT_EQ(state_of("a"), ModelState::kLoaded);
  EXPECT_EQ(ask("b").result_int(), 200u);
  wait_until("b", ModelState::kUnloaded);
  EXPECT_EQ(state_of("a"), ModelState::kLoaded);
  EXPECT_EQ(send(http::verb::post, "/models/unload", {{"model", "a"}}).result_int(), 400u);
}

TEST_F(ModelsOverHttp, ThatCanNeverFitAreRefusedAtStart) {
  const auto create = [&](std::vector<PooledModel> models, std::uint64_t memory) {
    const auto pool = ModelPool::create(state_, std::move(models), {.memory = memory});
    return pool ? std::string() : pool.error().message();
  };
  const auto two = [&](bool stays, bool preload) {
    std::vector<PooledModel> models;
    for (const char* name : {"a", "b"}) {
      models.push_back(model(name));
      models.back().stays = stays && models.size() == 1;
      models.back().is_preloaded = preload;
    }
    return models;
  };
  EXPECT_EQ(create(two(false, false), kShare), "");
  EXPECT_THAT(create(two(false, false), kShare / 2), HasSubstr("a: expected at most 32.0 MiB"));
  EXPECT_THAT(create(two(true, false), kShare), HasSubstr("b: expected at most 64.0 MiB"));
  EXPECT_THAT(create(two(false, true), kShare), HasSubstr("b: expected models to be loaded"));
  std::vector<PooledModel> same = two(false, false);
  same.back().aliases = {"a"};
  EXPECT_THAT(create(std::move(same), kShare), HasSubstr("got 'a' twice"));
}

}  // namespace
}  // namespace kakeya::wire
