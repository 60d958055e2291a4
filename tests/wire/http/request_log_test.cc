// The log of `kakeya serve`: what is in a line, what never is, and that nobody waits for a disk.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "formats/scratch_files.h"
#include "runtime/demo_sessions.h"
#include "service/server_log.h"
#include "wire/http/http_client.h"
#include "wire/http/keys.h"
#include "wire/http/test_server.h"

namespace kakeya::wire {
namespace {

namespace http = test::http;
using nlohmann::json;
using test::HttpClient;
using test::HttpResponse;

// A disk that takes nothing until it is let go.
class HungDisk {
 public:
  void write(std::string_view line) {
    std::unique_lock lock(mutex_);
    ++begun_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !hangs_; });
    lines_.emplace_back(line);
  }
  void wait_for_writer() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return begun_ > 0; });
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    hangs_ = false;
    changed_.notify_all();
  }
  const std::vector<std::string>& lines() const { return lines_; }  // when the log has gone

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool hangs_ = true;
  int begun_ = 0;
  std::vector<std::string> lines_;
};

TEST(ServerLogQueue, NobodyWaitsForADiskThatHangs) {
  HungDisk disk;
  auto log = service::ServerLog::to([&](std::string_view line) { disk.write(line); },
                                    service::LogLevel::kInfo, 4);
  log->add(service::LogLevel::kInfo, "0");
  disk.wait_for_writer();  // the disk has the first line
  for (int number = 1; number <= 10; ++number)
    log->add(service::LogLevel::kInfo, std::to_string(number));
  EXPECT_EQ(log->lost(), 6u);
  disk.let_go();
  log.reset();
  std::vector<std::string> events;
  for (const std::string& line : disk.lines()) events.push_back(json::parse(line)["event"]);
  EXPECT_EQ(events, (std::vector<std::string>{"0", "7", "8", "9", "10"})) << "the newest stay";
}

// A limit of a file's size stands for a disk that fills up within a line.
TEST(ServerLogQueue, ALineThatADiskTookAPartOfBreaksNoOther) {
  const ScratchFolder scratch;
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 20;
  auto log = service::ServerLog::open(scratch.path("log"), service::LogLevel::kInfo).value();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  log->add(service::LogLevel::kInfo, "cut");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (log->lost() == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(log->lost(), 1u);
  log->add(service::LogLevel::kInfo, "whole");
  log.reset();
  std::ifstream file(scratch.path("log"));
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(line.size(), 20u);
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(json::parse(line)["event"], "whole");
}

TEST(ServerLogQueue, CountsWhatCouldNotBeWritten) {
  auto log =
      service::ServerLog::to([](std::string_view) { throw std::runtime_error("the disk is full"); },
                             service::LogLevel::kInfo, 4);
  log->add(service::LogLevel::kDebug, "below");
  log->add(service::LogLevel::kInfo, "lost");
  while (log->lost() == 0) std::this_thread::yield();
  EXPECT_EQ(log->lost(), 1u);
}

class ServerLogTest : public testing::Test {
 protected:
  ServerLogTest() : folder_(testing::TempDir() + "kakeya_log_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~ServerLogTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const char* name) const { return folder_ + "/" + name; }

  void start(service::LogLevel level = service::LogLevel::kInfo) {
    HttpOptions http;
    if (std::filesystem::exists(path("keys"))) http.keys_file = path("keys");
    const service::ServiceOptions options = {.log_file = path("log"), .log_level = level};
    server_ = std::make_unique<test::TestServer>(*engine_, options, http);
  }

  std::string write_key(const char* name) const {
    const NewKey made = make_key(name).value();
    std::ofstream(path("keys")) << made.line << "\n";
    return made.key;
  }

  unsigned ask(const json& body, const std::string& key = "") const {
    HttpClient client(server_->port());
    http::fields fields;
    if (!key.empty()) fields.set(http::field::authorization, "Bearer " + key);
    client.send(fields, http::verb::post, "/v1/chat/completions", body.dump());
    return client.receive().result_int();
  }

  static json request(const std::string& text) {
    return {{"model", "demo"},
            {"messages", json::array({{{"role", "user"}, {"content", text}}})},
            {"max_tokens", 60},
            {"temperature", 0}};
  }

  std::string text_of(const char* name) const {
    std::ifstream file(path(name));
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  // The server's lines until its end, in order.
  std::vector<json> lines() {
    server_.reset();
    std::vector<json> lines;
    std::ifstream file(path("log"));
    for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
    return lines;
  }

  // Those of requests, as these came: a line is written when connection and scheduler are both
  // done.
  std::vector<json> requests() {
    std::vector<json> found = events("request");
    const auto number = [](const json& line) { return line["number"].get<int>(); };
    std::ranges::sort(found, {}, number);
    return found;
  }

  std::vector<json> events(const char* event) {
    std::vector<json> found;
    for (const json& line : lines()) {
      if (line["event"] == event) found.push_back(line);
    }
    return found;
  }

  const std::string folder_;
  std::shared_ptr<Engine> engine_ = test::open_engine(test::demo_options("auto"));
  std::unique_ptr<test::TestServer> server_;
};

TEST_F(ServerLogTest, SaysWhatBecameOfAnAnswerAndNothingOfWhatWasSaid) {
  const std::string key = write_key("ann");
  start();
  // The answer repeats the question's numbers.
  ASSERT_EQ(ask(request("Count from 31415 to 31418."), key), 200u);
  ASSERT_EQ(ask(request("xyzzy"), "kakeya-plugh"), 401u);
  HttpClient client(server_->port());
  client.get("/v1/xyzzy?secret=plugh");
  server_.reset();
  const std::string text = text_of("log");
  for (const std::string& word :
       {std::string("31415"), std::string("xyzzy"), std::string("plugh"), key}) {
    EXPECT_EQ(text.find(word), std::string::npos) << word;
  }
  const std::vector<json> said = lines();
  ASSERT_EQ(said.size(), 5u);
  EXPECT_EQ(said.front()["event"], "started");
  EXPECT_EQ(said.back()["event"], "stopped");
  const std::vector<json> asked = requests();
  ASSERT_EQ(asked.size(), 3u);
  const json& answer = asked[0];
  EXPECT_EQ(answer["event"], "request");
  EXPECT_EQ(answer["level"], "info");
  EXPECT_TRUE(answer["time"].get<std::string>().ends_with("Z"));
  EXPECT_EQ(answer["time"].get<std::string>().size(),
            std::string("2000-01-01T00:00:00.000Z").size());
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(answer["key"], "ann");
  EXPECT_EQ(answer["peer"], "127.0.0.1");
  EXPECT_EQ(answer["route"], "/v1/chat/completions");
  EXPECT_EQ(answer["status"], 200);
  EXPECT_TRUE(answer["end"] == "stop" || answer["end"] == "length") << answer;
  EXPECT_GT(answer["prompt_tokens"], 5);
  EXPECT_EQ(answer["cached_tokens"], 0);
  EXPECT_GT(answer["generated_tokens"], 0);
  EXPECT_GT(answer["drafted_tokens"], 0);
  EXPECT_GT(answer["accepted_tokens"], 0);
  EXPECT_LE(answer["accepted_tokens"], answer["drafted_tokens"]);
  EXPECT_GT(answer["first_token_ms"], 0.0);
  EXPECT_LE(answer["queue_ms"], answer["first_token_ms"]);
  EXPECT_LE(answer["first_token_ms"], answer["total_ms"]);
  EXPECT_EQ(asked[1]["status"], 401);
  EXPECT_EQ(asked[1]["level"], "warn");
  EXPECT_EQ(asked[1]["end"], "error");
  EXPECT_EQ(asked[2]["route"], "other");
}

TEST_F(ServerLogTest, NamesTheTraceThatARequestIsAPartOf) {
  start();
  const std::string id = "4bf92f3577b34da6a3ce929d0e0e4736";
  const std::string sound = "00-" + id + "-00f067aa0ba902b7-01";
  const std::string zeros(32, '0');
  const std::vector<std::string> fields = {sound,
                                           "cc-" + id + "-00f067aa0ba902b7-01-what-comes-later",
                                           sound + "-more",  // not in version 00
                                           "ff-" + id + "-00f067aa0ba902b7-01",
                                           "00-" + zeros + "-00f067aa0ba902b7-01",
                                           "00-" + id + "-0000000000000000-01",
                                           "00-" + id + "-00F067AA0BA902B7-01",
                                           sound.substr(0, 54),
                                           "x"};
  for (const std::string& field : fields) {
    HttpClient client(server_->port());
    http::fields sent;
    sent.set("traceparent", field);
    client.send(sent, http::verb::get, "/v1/models");
    client.receive();
  }
  const std::vector<json> asked = requests();
  ASSERT_EQ(asked.size(), fields.size());
  for (std::size_t i = 0; i < fields.size(); ++i) {
    EXPECT_EQ(asked[i].value("trace_id", ""), i < 2 ? id : "") << fields[i];
  }
}

TEST_F(ServerLogTest, TellsHowAnswersEnd) {
  start();
  json stopped = request("Count from 5 to 12.");
  ask(stopped);
  json cut = stopped;
  cut["max_tokens"] = 3;
  ask(cut);
  json halted = stopped;
  halted["stop"] = ", 9";
  ask(halted);
  {
    json endless = stopped;
    endless["max_tokens"] = 900;
    endless["stream"] = true;
    for (const TokenId id : engine_->stop_ids()) endless["logit_bias"][std::to_string(id)] = -100;
    HttpClient client(server_->port());
    client.send({}, http::verb::post, "/v1/chat/completions", endless.dump());
    client.wait_for_bytes();
  }
  while (server_->statistics().running > 0) std::this_thread::yield();
  const std::vector<json> said = requests();
  ASSERT_EQ(said.size(), 4u);
  const char* const ends[] = {"stop", "length", "stop", "cancelled"};
  for (std::size_t i = 0; i < said.size(); ++i) EXPECT_EQ(said[i]["end"], ends[i]) << said[i];
  EXPECT_EQ(said[1]["generated_tokens"], 3);
  // Whose client was content before the scheduler had ended it: what that says is there all the
  // same.
  EXPECT_GT(said[2]["drafted_tokens"], 0) << said[2];
}

TEST_F(ServerLogTest, LevelsLeaveOutWhatIsAskedAllTheTime) {
  for (const auto& [level, expected] :
       {std::pair(service::LogLevel::kDebug, 2u), std::pair(service::LogLevel::kInfo, 1u),
        std::pair(service::LogLevel::kWarn, 0u)}) {
    std::filesystem::remove(path("log"));
    start(level);
    HttpClient client(server_->port());
    client.get("/health");
    client.get("/v1/models");
    EXPECT_EQ(requests().size(), expected);
  }
}

TEST_F(ServerLogTest, AReloadOpensTheFileAnewAndTakesOtherKeys) {
  const std::string first = write_key("ann");
  start();
  while (text_of("log").find("started") == std::string::npos) std::this_thread::yield();
  std::filesystem::rename(path("log"), path("log.1"));
  const std::string second = write_key("bob");
  ASSERT_TRUE(server_->http().reload().has_value());
  EXPECT_EQ(ask(request("a"), first), 401u);
  EXPECT_EQ(ask(request("a"), second), 200u);
  std::ofstream(path("keys")) << "rubbish\n";
  EXPECT_FALSE(server_->http().reload().has_value());
  EXPECT_EQ(ask(request("a"), second), 200u);
  const std::vector<json> reloaded = events("keys reloaded");
  ASSERT_EQ(reloaded.size(), 1u);
  EXPECT_EQ(reloaded[0]["keys"], 1);
  const std::vector<json> failed = events("keys not reloaded");
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0]["level"], "warn");
  EXPECT_EQ(requests().size(), 3u);
  EXPECT_EQ(events("started").size(), 0u) << "that is in the file before";
  EXPECT_NE(text_of("log.1").find("started"), std::string::npos);
}

TEST_F(ServerLogTest, AFileThatCannotBeOpenedIsSaidAtStart) {
  const Status checked = service::ServerState::check({.log_file = folder_});  // a folder
  ASSERT_FALSE(checked.has_value());
  EXPECT_EQ(checked.error().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(checked.error().message().find(folder_), std::string::npos);
}

}  // namespace
}  // namespace kakeya::wire
