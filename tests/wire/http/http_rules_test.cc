// HTTP's own rules over raw sockets: what is refused ends the connection, and nothing behind it is
// read as a request; what is allowed is answered as RFC 9110 and 9112 say.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>
#include <random>

#include "runtime/demo_sessions.h"
#include "thorough.h"
#include "wire/http/http_client.h"
#include "wire/http/keys.h"
#include "wire/http/raw_client.h"
#include "wire/http/test_server.h"

namespace kakeya::wire {
namespace {

using nlohmann::json;
using test::all_answers;
using test::HttpClient;
using test::RawClient;
using test::status_lines;

constexpr std::string_view kModels = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n";

std::string chunk_of(const std::string& bytes, const std::string& extension = "") {
  return fmt::format("{:x}{}\r\n{}\r\n", bytes.size(), extension, bytes);
}

std::string post(const std::string& fields, const std::string& body) {
  return "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
         "Content-Type: application/json\r\n" +
         fields + "\r\n" + body;
}

std::string sized(const std::string& fields, const std::string& body) {
  return post(fmt::format("{}Content-Length: {}\r\n", fields, body.size()), body);
}

class HttpRules : public testing::Test {
 protected:
  HttpRules() : engine_(test::open_engine(test::demo_options("auto"))) { start(); }

  void start(const service::ServiceOptions& service, const HttpOptions& http = {}) {
    server_.reset();
    server_ = std::make_unique<test::TestServer>(*engine_, service, http);
  }
  void start(const HttpOptions& http = {}) { start(service::ServiceOptions(), http); }

  std::uint16_t port() const { return server_->port(); }

  static std::string question(int max_tokens = 4) {
    const json body = {
        {"model", "demo"},
        {"messages", json::array({{{"role", "user"}, {"content", "Count from 5 to 12."}}})},
        {"max_tokens", max_tokens},
        {"temperature", 0}};
    return body.dump();
  }

  std::shared_ptr<Engine> engine_;
  std::unique_ptr<test::TestServer> server_;
};

struct Refused {
  const char* what;
  std::string bytes;
  std::string status;
};

// Each is followed by requests that somebody else might have smuggled in.
std::vector<Refused> refused_requests() {
  const std::string behind = "GET /health HTTP/1.1\r\nHost: localhost\r\n";
  return {
      {"text", "hello\r\n\r\n", "400"},
      {"an empty line", "\n\n\r\n\r\n", "400"},
      {"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400"},
      {"TLS", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15), "400"},
      {"a proxy's line", "PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n", "400"},
      {"another version", "GET /health HTTP/3.7\r\n\r\n", "400"},
      {"a bare line's end", "GET /health HTTP/1.1\nHost: localhost\n\n", "400"},
      {"two lengths", post("Content-Length: 5\r\nContent-Length: 60\r\n", "hello"), "400"},
      {"a length that is none", post("Content-Length: 5x\r\n", "hello"), "400"},
      {"a length and chunks",
       post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), "400"},
      {"a chunk's size that is none", post("Transfer-Encoding: chunked\r\n", "zz\r\n"), "400"},
      {"an unknown encoding", post("Transfer-Encoding: xchunked\r\n", std::string(kModels)), "501"},
      {"another encoding", post("Transfer-Encoding: gzip\r\n", std::string(kModels)), "501"},
      {"the identity", post("Transfer-Encoding: identity\r\n", std::string(kModels)), "501"},
      {"chunks twice", post("Transfer-Encoding: chunked, chunked\r\n", std::string(kModels)),
       "501"},
      {"chunks and more", post("Transfer-Encoding: chunked, gzip\r\n", std::string(kModels)),
       "501"},
      {"two fields of encodings",
       post("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", std::string(kModels)),
       "501"},
      {"an empty encoding", post("Transfer-Encoding: \r\n", std::string(kModels)), "501"},
      {"an unknown encoding and a length",
       post("Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n", "hello"), "501"},
      {"chunks of HTTP/1.0",
       "POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\n"
       "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       "501"},
      {"two hosts", behind + "Host: example.com\r\n\r\n", "400"},
      {"no host", "GET /health HTTP/1.1\r\n\r\n", "400"},
      {"a long field", behind + "X: " + std::string(20'000, 'a') + "\r\n\r\n", "431"},
      {"a long chunk extension",
       post("Transfer-Encoding: chunked\r\n", chunk_of("a", ";" + std::string(200'000, 'b'))),
       "431"},
      {"a long chunk size",
       post("Transfer-Encoding: chunked\r\n", std::string(200'000, '0') + "1\r\na\r\n"), "431"},
      {"long trailers",
       post("Transfer-Encoding: chunked\r\n", "0\r\nX: " + std::string(200'000, 'a') + "\r\n\r\n"),
       "431"},
      {"a long body", sized("", std::string(9 << 20, ' ')), "413"},
      {"a long body that is requests",
       sized("", std::string(kModels) + std::string(9 << 20, ' ') + std::string(kModels)), "413"},
      {"a body in chunks",
       post("Transfer-Encoding: chunked\r\n",
            chunk_of(std::string(5 << 20, ' ')) + chunk_of(std::string(5 << 20, ' '))),
       "413"},
      {"a body of something that takes none",
       behind + "Content-Length: 100000\r\n\r\n" + std::string(100'000, ' '), "413"},
      {"another host", "GET /v1/models HTTP/1.1\r\nHost: example.com\r\n\r\n", "403"},
      {"a post for another host",
       "POST /v1/chat/completions HTTP/1.1\r\nHost: example.com\r\nContent-Length: 50\r\n\r\n",
       "403"},
  };
}

TEST_F(HttpRules, ARefusalEndsTheConnectionAndNothingBehindItIsRead) {
  for (const Refused& refused : refused_requests()) {
    const std::string bytes = refused.bytes + std::string(kModels) + std::string(kModels);
    const std::string answers = all_answers(port(), bytes);
    const std::vector<std::string> lines = status_lines(answers);
    ASSERT_EQ(lines.size(), 1u) << refused.what << ": " << answers.substr(0, 2000);
    EXPECT_EQ(lines[0].substr(9, 3), refused.status) << refused.what;
    EXPECT_NE(answers.find("Connection: close\r\n"), std::string::npos) << refused.what;
  }
}

TEST_F(HttpRules, ARefusalIsOneShortLineOfTheLog) {
  const std::string path = testing::TempDir() + "http_rules_log";
  std::filesystem::remove(path);
  start({.log_file = path});
  const std::vector<Refused> refusals = refused_requests();
  for (const Refused& refused : refusals) all_answers(port(), refused.bytes + std::string(kModels));
  server_.reset();
  std::ifstream file(path);
  std::size_t requests = 0;
  for (std::string line; std::getline(file, line);) {
    EXPECT_LT(line.size(), 400u);
    if (json::parse(line)["event"] == "request") ++requests;
  }
  EXPECT_EQ(requests, refusals.size());
}

TEST_F(HttpRules, ARefusalForWantOfAKeyEndsTheConnection) {
  const NewKey key = make_key("ann").value();
  const std::string path = testing::TempDir() + "http_rules_keys";
  std::ofstream(path) << key.line << ":1\n";
  start({.keys_file = path});
  const std::string bearer = "Authorization: Bearer " + key.key + "\r\n";
  const std::string asks = sized(bearer, question());
  for (const auto& [bytes, statuses] :
       std::vector<std::pair<std::string, std::vector<std::string>>>{
           {sized("", question()), {"401"}},
           {sized("Authorization: Bearer other\r\n", std::string(kModels)), {"401"}},
           {asks + asks + std::string(kModels), {"200", "429"}},
           {sized("Expect: 100-continue\r\n", question()), {"401"}}}) {
    std::vector<std::string> got;
    for (const std::string& line : status_lines(all_answers(port(), bytes + asks))) {
      got.push_back(line.substr(9, 3));
    }
    EXPECT_EQ(got, statuses);
  }
}

// A client that sends all of its body before it reads sees why it was refused.
TEST_F(HttpRules, AClientThatIsSendingReadsTheRefusal) {
  const RawClient client(port());
  client.send(sized("", std::string(12 << 20, ' ')));
  const std::string answer = client.read_to_end();
  EXPECT_EQ(status_lines(answer), std::vector<std::string>{"HTTP/1.1 413 Payload Too Large"});
  EXPECT_NE(answer.find("8388608 bytes"), std::string::npos);
}

// Random changes of requests: once an answer has said that the connection ends, nothing follows,
// and there are no more answers than there can have been requests.
TEST_F(HttpRules, RandomBytesGetNoAnswersThatNobodyAskedFor) {
  std::mt19937 random(7);
  const auto below = [&random](std::size_t count) {
    return static_cast<std::size_t>(random() % count);
  };
  const std::vector<std::string> parts = {
      std::string(kModels),
      sized("", R"({"model":"other"})"),
      post("Transfer-Encoding: chunked\r\n",
           chunk_of(R"({"model":)") + chunk_of("1}") + "0\r\n\r\n"),
      "HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "GET / HTTP/1.0\r\n\r\n",
      "Content-Length: 3\r\n",
      "\r\n",
      "0\r\n\r\n"};
  const int streams = test::by_form(400, 10'000);
  for (int count = 0; count < streams; ++count) {
    std::string bytes;
    for (std::size_t i = 0; i <= below(4); ++i) bytes += parts[below(parts.size())];
    for (std::size_t i = 0; i < below(6); ++i) {
      const std::size_t at = below(bytes.size());
      if (below(2) == 0) bytes[at] = static_cast<char>(below(256));
      if (below(3) == 0) bytes.erase(at, below(8));
      if (bytes.empty()) bytes = "\r\n";
    }
    const RawClient client(port());
    client.send(bytes);
    client.end_sending();
    const std::string answers = client.read_to_end();
    const std::size_t closing = answers.find("Connection: close\r\n");
    EXPECT_LE(status_lines(answers).size(), 8u) << bytes;
    if (closing == std::string::npos) continue;
    EXPECT_TRUE(status_lines(answers.substr(closing)).empty()) << bytes << "\n-> " << answers;
  }
}

TEST_F(HttpRules, HeadIsGetWithoutABody) {
  const RawClient client(port());
  for (const char* path : {"/v1/models", "/health", "/", "/metrics", "/none"}) {
    client.send(fmt::format("HEAD {} HTTP/1.1\r\nHost: localhost\r\n\r\n", path));
    const std::string header = client.read_until("\r\n\r\n");
    EXPECT_TRUE(
        header.starts_with(std::string_view(path) == "/none" ? "HTTP/1.1 404" : "HTTP/1.1 200"))
        << header;
    EXPECT_EQ(header.find("Content-Length: 0\r\n"), std::string::npos) << header;
  }
  client.send("HEAD /v1/embeddings HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_NE(client.read_until("\r\n\r\n").find("Allow: POST, OPTIONS"), std::string::npos);
  client.send("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(client.read_to_end().starts_with("HTTP/1.1 200 OK"));
}

TEST_F(HttpRules, OptionsSaysWhatMayBeAsked) {
  const RawClient client(port());
  const std::pair<const char*, const char*> expected[] = {{"/v1/models", "GET, HEAD, OPTIONS"},
                                                          {"/", "GET, HEAD, OPTIONS"},
                                                          {"*", "GET, HEAD, OPTIONS"},
                                                          {"/v1/completions", "POST, OPTIONS"}};
  for (const auto& [path, allowed] : expected) {
    client.send(fmt::format("OPTIONS {} HTTP/1.1\r\nHost: localhost\r\n\r\n", path));
    const std::string header = client.read_until("\r\n\r\n");
    EXPECT_TRUE(header.starts_with("HTTP/1.1 204")) << header;
    EXPECT_NE(header.find(fmt::format("Allow: {}\r\n", allowed)), std::string::npos) << header;
  }
}

TEST_F(HttpRules, AnswersSayWhenAndHowLongAConnectionIsKept) {
  const RawClient client(port());
  client.send(std::string(kModels));
  const std::string header = client.read_until("\r\n\r\n");
  EXPECT_NE(header.find("Date: "), std::string::npos) << header;
  EXPECT_NE(header.find(" GMT\r\n"), std::string::npos) << header;
  EXPECT_NE(header.find("Connection: keep-alive\r\n"), std::string::npos) << header;
  EXPECT_NE(header.find("Keep-Alive: timeout=60\r\n"), std::string::npos) << header;
}

TEST_F(HttpRules, WordsOfHeadersHaveNoCase) {
  const std::string body = question();
  const std::string answer = all_answers(
      port(), fmt::format("POST //v1/chat/completions HTTP/1.1\r\nHOST: LocalHost:1\r\n"
                          "content-type: Application/JSON; charset=utf-8\r\nConnection: Close\r\n"
                          "content-length: {}\r\n\r\n{}",
                          body.size(), body));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
  const std::string other = all_answers(port(), "GET / HTTP/1.1\r\nHost: example.com:1\r\n\r\n");
  EXPECT_NE(other.find("got 'example.com:1'"), std::string::npos) << other;
}

TEST_F(HttpRules, AClientThatHasEndedItsSideGetsItsAnswer) {
  for (const bool stream : {false, true}) {
    json body = json::parse(question(60));
    body["stream"] = stream;
    const RawClient client(port());
    client.send(sized("Connection: close\r\n", body.dump()));
    client.end_sending();
    const std::string answer = client.read_to_end();
    EXPECT_NE(answer.find("HTTP/1.1 200"), std::string::npos) << answer;
    EXPECT_NE(answer.find(stream ? "data: [DONE]" : "11, 12."), std::string::npos) << answer;
  }
}

// Requests that are sent ahead are answered one after the other, however the first one's end and
// the second one's bytes meet.
TEST_F(HttpRules, RequestsSentAheadAreAnswered) {
  for (int pause = 0; pause < test::by_form(20, 200); ++pause) {
    const RawClient client(port());
    client.send(sized("", question()));
    std::this_thread::sleep_for(std::chrono::microseconds(500 * pause));
    client.send(sized("Connection: close\r\n", question()));
    EXPECT_EQ(status_lines(client.read_to_end()).size(), 2u) << pause;
  }
}

TEST_F(HttpRules, ANewcomerTakesThePlaceOfAnIdleConnection) {
  start({.most_connections = 3});
  std::list<RawClient> idle;
  for (int count = 0; count < 20; ++count) idle.emplace_back(port());
  for (int count = 0; count < 10; ++count) {
    EXPECT_TRUE(
        all_answers(
            port(),
            std::string("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
            .starts_with("HTTP/1.1 200"));
  }
}

TEST_F(HttpRules, WithoutDescriptorsConnectionsWait) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto used =
      static_cast<rlim_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
  rlimit few = before;
  few.rlim_cur = used + 20;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::list<RawClient> idle;
  EXPECT_THROW(
      {
        for (;;) idle.emplace_back(port());
      },
      std::runtime_error);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  idle.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(HttpClient(port()).get("/health").result_int(), 200u);
}

}  // namespace
}  // namespace kakeya::wire
