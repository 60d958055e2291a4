// A pass that does not end, as clients and operators see it.
#include "service/watchdog.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>

#include "runtime/demo_sessions.h"
#include "service/driver.h"
#include "wire/http/http_client.h"
#include "wire/http/test_server.h"

namespace kakeya::service {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using test::HttpClient;

// Its one step takes as long as the test wants, and ends all requests.
class StuckScheduler final : public Scheduler {
 public:
  explicit StuckScheduler(std::shared_future<void> released) : released_(std::move(released)) {}
  ~StuckScheduler() override { stop({}); }

  Result<RequestId> add(Request request) override {
    const std::lock_guard lock(mutex_);
    requests_.push_back(std::move(request));
    changed_.notify_all();
    return requests_.size();
  }
  Status cancel(RequestId) override { return {}; }
  Result<bool> step() override {
    released_.wait();
    std::vector<Request> ended;
    {
      const std::lock_guard lock(mutex_);
      ended.swap(requests_);
    }
    for (const Request& request : ended) request.on_end(1, {});
    return true;
  }
  bool wait(std::chrono::steady_clock::time_point) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopped_ || !requests_.empty(); });
    return !stopped_;
  }
  void stop(Status) override {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  SchedulerStatistics statistics() const override { return {}; }

 private:
  const std::shared_future<void> released_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Request> requests_;
  bool stopped_ = false;
};

TEST(ServerDriverWatchdog, TellsOncePerPassAndForgetsWhenItEnds) {
  std::vector<bool> told;
  Watchdog watchdog(
      {.limit = milliseconds(2), .on_change = [&](bool stalled) { told.push_back(stalled); }});
  for (int pass = 1; pass <= 2; ++pass) {
    watchdog.begin();
    while (!watchdog.stalled()) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(5));  // longer still, which is nothing new
    watchdog.end();
    EXPECT_FALSE(watchdog.stalled());
    EXPECT_EQ(watchdog.stalls(), pass);
  }
  EXPECT_EQ(told, (std::vector<bool>{true, false, true, false}));
}

TEST(ServerDriverWatchdog, PassesAreWatchedOneByOneAndTheTimeBetweenIsNot) {
  Watchdog watchdog({.limit = milliseconds(20)});
  watchdog.begin();
  watchdog.end();
  std::this_thread::sleep_for(milliseconds(40));  // idle
  EXPECT_EQ(watchdog.stalls(), 0);
  Watchdog none({.limit = milliseconds(0)});
  none.begin();
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_FALSE(none.stalled());
}

// One whose requests wait for something that never comes.
class WaitingScheduler final : public Scheduler {
 public:
  Result<RequestId> add(Request) override { return ++waiting_; }
  Status cancel(RequestId) override { return {}; }
  Result<bool> step() override { return false; }
  bool wait(std::chrono::steady_clock::time_point) override {
    while (!stopped_) std::this_thread::sleep_for(milliseconds(1));
    return false;
  }
  void stop(Status) override { stopped_ = true; }
  SchedulerStatistics statistics() const override {
    return {.waiting = static_cast<std::int64_t>(waiting_)};
  }

 private:
  std::atomic<RequestId> waiting_ = 0;
  std::atomic<bool> stopped_ = false;
};

TEST(ServerDriverWatchdog, RequestsOfWhichNoneGoesOnAreNoticed) {
  const auto driver =
      Driver::create(std::make_unique<WaitingScheduler>(), {.limit = milliseconds(30)});
  std::this_thread::sleep_for(milliseconds(40));
  EXPECT_FALSE(driver->stuck()) << "nobody is there";
  const auto mailbox = std::make_shared<Mailbox>(1, [] {});
  ASSERT_TRUE(driver->submit({.prompt = {1}}, mailbox).has_value());
  const auto begin = std::chrono::steady_clock::now();
  while (!driver->stuck()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(20));
  EXPECT_FALSE(driver->stalled());
}

TEST(HttpServerWatchdog, HealthSaysSoUntilStepsGoOn) {
  const auto engine = test::open_engine(test::demo_options("none"));
  const std::string log = testing::TempDir() + fmt::format("kakeya_watchdog_{}", ::getpid());
  std::promise<void> release;
  auto server = std::make_unique<test::TestServer>(
      *engine,
      ServiceOptions{.log_file = log, .log_level = LogLevel::kWarn, .watchdog = milliseconds(10)},
      wire::HttpOptions(), std::make_unique<StuckScheduler>(release.get_future().share()));
  HttpClient client(server->port());
  EXPECT_EQ(client.get("/health").result_int(), 200u);
  HttpClient asking(server->port());
  asking.send({}, test::http::verb::post, "/v1/completions",
              R"({"model":"demo","prompt":"a","max_tokens":1})");
  test::HttpResponse health;
  do {
    health = client.get("/health");
  } while (health.result_int() == 200u);
  EXPECT_EQ(health.result_int(), 503u);
  EXPECT_EQ(health.body(), R"({"status":"stalled","reason":"a pass takes longer than 0.01 s"})");
  EXPECT_NE(client.get("/metrics").body().find("kakeya_stalls_total 1\n"), std::string::npos);
  release.set_value();
  EXPECT_EQ(asking.receive().result_int(), 200u);
  do {
    health = client.get("/health");
  } while (health.result_int() != 200u);
  server.reset();
  std::ifstream file(log);
  std::vector<std::string> events;
  for (std::string line; std::getline(file, line);) {
    const std::string event = json::parse(line)["event"];
    if (event != "request") events.push_back(event);
  }
  EXPECT_EQ(events, (std::vector<std::string>{"stalled", "steps go on"}));
  std::filesystem::remove(log);
}

}  // namespace
}  // namespace kakeya::service
