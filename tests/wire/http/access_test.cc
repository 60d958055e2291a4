// Keys, TLS and Unix sockets as clients meet them.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <filesystem>
#include <fstream>

#include "runtime/demo_sessions.h"
#include "wire/http/http_client.h"
#include "wire/http/http_server.h"
#include "wire/http/keys.h"
#include "wire/http/test_server.h"

namespace kakeya::wire {
namespace {

namespace http = test::http;
namespace asio = boost::asio;
using nlohmann::json;
using test::HttpClient;
using test::HttpResponse;

class AccessTest : public testing::Test {
 protected:
  AccessTest() {
    folder_ = testing::TempDir() + "kakeya_access_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
    write_certificate();
  }
  ~AccessTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const char* name) const { return folder_ + "/" + name; }

  // One for example.test that signs itself.
  void write_certificate() {
    EVP_PKEY* const key = ::EVP_EC_gen("P-256");
    X509* const certificate = ::X509_new();
    ::X509_set_version(certificate, 2);
    ::ASN1_INTEGER_set(::X509_get_serialNumber(certificate), 1);
    ::X509_gmtime_adj(::X509_getm_notBefore(certificate), 0);
    ::X509_gmtime_adj(::X509_getm_notAfter(certificate), 3600);
    ::X509_set_pubkey(certificate, key);
    X509_EXTENSION* const names =
        ::X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:example.test");
    ::X509_add_ext(certificate, names, -1);
    ::X509_sign(certificate, key, ::EVP_sha256());
    std::FILE* file = std::fopen(path("cert").c_str(), "w");
    ::PEM_write_X509(file, certificate);
    std::fclose(file);
    file = std::fopen(path("key").c_str(), "w");
    ::PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
    ::X509_EXTENSION_free(names);
    ::X509_free(certificate);
    ::EVP_PKEY_free(key);
  }

  std::string write_keys(const std::string& quota = "") {
    const NewKey made = make_key("ann").value();
    std::ofstream(path("keys")) << made.line << quota << "\n";
    return made.key;
  }

  void start(const service::ServiceOptions& service, const HttpOptions& http = {}) {
    server_.reset();
    server_ = std::make_unique<test::TestServer>(*engine_, service, http);
  }
  void start(const HttpOptions& http = {}) { start(service::ServiceOptions(), http); }

  static http::request<http::string_body> request(http::verb verb,
                                                  const char* target,
                                                  const std::string& key,
                                                  const std::string& host = "localhost") {
    http::request<http::string_body> request(verb, target, 11);
    request.set(http::field::host, host);
    request.set(http::field::content_type, "application/json");
    if (!key.empty()) request.set(http::field::authorization, "Bearer " + key);
    if (verb == http::verb::post) {
      request.body() =
          R"({"model":"demo","messages":[{"role":"user","content":"a"}],"max_tokens":1})";
    }
    request.prepare_payload();
    return request;
  }

  template <typename Stream>
  static HttpResponse exchange(Stream& stream, const http::request<http::string_body>& request) {
    http::write(stream, request);
    boost::beast::flat_buffer buffer;
    HttpResponse response;
    http::read(stream, buffer, response);
    return response;
  }

  HttpResponse ask(const http::request<http::string_body>& request) {
    asio::io_context io;
    asio::ip::tcp::socket socket(io);
    socket.connect({asio::ip::address_v4::loopback(), server_->port()});
    return exchange(socket, request);
  }

  HttpResponse ask_by_tls(const http::request<http::string_body>& request,
                          asio::ssl::context::method method = asio::ssl::context::tls_client) {
    asio::io_context io;
    asio::ssl::context context(method);
    context.load_verify_file(path("cert"));
    context.set_verify_mode(asio::ssl::verify_peer);
    asio::ssl::stream<asio::ip::tcp::socket> stream(io, context);
    stream.next_layer().connect({asio::ip::address_v4::loopback(), server_->port()});
    stream.handshake(asio::ssl::stream_base::client);
    return exchange(stream, request);
  }

  std::string folder_;
  std::shared_ptr<Engine> engine_ = test::open_engine(test::demo_options("none"));
  std::unique_ptr<test::TestServer> server_;
};

TEST_F(AccessTest, AnswersWhoHasAKeyAlone) {
  const std::string key = write_keys();
  start({.keys_file = path("keys")});
  for (const char* target : {"/v1/models", "/metrics", "/props", "/none"}) {
    EXPECT_EQ(ask(request(http::verb::get, target, "")).result_int(), 401u) << target;
    EXPECT_EQ(ask(request(http::verb::get, target, key + "0")).result_int(), 401u) << target;
  }
  for (const char* target : {"/health", "/", "/page/page.js"}) {
    EXPECT_EQ(ask(request(http::verb::get, target, "")).result_int(), 200u) << target;
  }
  const HttpResponse denied = ask(request(http::verb::post, "/v1/chat/completions", ""));
  EXPECT_EQ(denied.result_int(), 401u);
  EXPECT_EQ(denied["WWW-Authenticate"], "Bearer");
  EXPECT_EQ(json::parse(denied.body())["error"]["code"], "invalid_api_key");
  EXPECT_EQ(ask(request(http::verb::post, "/v1/chat/completions", key)).result_int(), 200u);
  const std::string metrics = ask(request(http::verb::get, "/metrics", key)).body();
  EXPECT_NE(metrics.find(R"(kakeya_http_requests_total{key="ann"} 2)"), std::string::npos);
}

TEST_F(AccessTest, ABodyIsNotReadOfWhoHasNoKey) {
  write_keys();
  start({.keys_file = path("keys")});
  HttpClient client(server_->port());
  client.send_bytes(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n");
  EXPECT_EQ(client.receive().result_int(), 401u);
}

TEST_F(AccessTest, AQuotaSaysWhenToComeBack) {
  const std::string key = write_keys(":1");
  start({.keys_file = path("keys")});
  EXPECT_EQ(ask(request(http::verb::post, "/v1/chat/completions", key)).result_int(), 200u);
  const HttpResponse more = ask(request(http::verb::post, "/v1/chat/completions", key));
  EXPECT_EQ(more.result_int(), 429u);
  EXPECT_GT(std::stoi(std::string(more["Retry-After"])), 1);
  EXPECT_EQ(json::parse(more.body())["error"]["code"], "rate_limit_exceeded");
  // A request that costs nothing is not counted.
  EXPECT_EQ(ask(request(http::verb::get, "/v1/models", key)).result_int(), 200u);
}

TEST_F(AccessTest, AQuotaCountsEachAnswer) {
  const std::string key = write_keys(":60");  // of which 15 are saved up
  start({.keys_file = path("keys")});
  auto many = request(http::verb::post, "/v1/completions", key);
  many.body() = R"({"prompt":["a","b"],"n":8,"max_tokens":1})";
  many.prepare_payload();
  EXPECT_EQ(ask(many).result_int(), 200u);
  EXPECT_EQ(ask(request(http::verb::post, "/v1/chat/completions", key)).result_int(), 429u);
}

TEST_F(AccessTest, AnswersThatCannotBePlannedCostNoPlaces) {
  const std::string key = write_keys(":60");  // of which 15 are saved up
  start({.keys_file = path("keys")});
  for (const char* const wrong : {R"("regex":"(a")", R"("stop":"\u00ff\u0000","regex":"(a")"}) {
    auto many = request(http::verb::post, "/v1/completions", key);
    many.body() = R"({"prompt":["a","b"],"n":8,"max_tokens":1,)" + std::string(wrong) + "}";
    many.prepare_payload();
    EXPECT_EQ(ask(many).result_int(), 400u) << wrong;
  }
  EXPECT_EQ(ask(request(http::verb::post, "/v1/chat/completions", key)).result_int(), 200u);
}

TEST_F(AccessTest, ServesOverTls) {
  const std::string key = write_keys();
  start({.host = "0.0.0.0",
         .tls_certificate = path("cert"),
         .tls_key = path("key"),
         .keys_file = path("keys")});
  EXPECT_EQ(server_->http().address(), fmt::format("https://0.0.0.0:{}", server_->port()));
  const auto status = [&](const std::string& host) {
    return ask_by_tls(request(http::verb::post, "/v1/chat/completions", key, host)).result_int();
  };
  EXPECT_EQ(status("localhost"), 200u);
  // A certificate's names and addresses in digits are the server's, others are not.
  EXPECT_EQ(status("example.test:1"), 200u);
  EXPECT_EQ(status("192.168.0.1"), 200u);
  EXPECT_EQ(status("other.test"), 403u);
  EXPECT_EQ(ask_by_tls(request(http::verb::get, "/v1/models", "")).result_int(), 401u);
  EXPECT_THROW(ask(request(http::verb::get, "/health", "")), boost::system::system_error);
  EXPECT_THROW(
      ask_by_tls(request(http::verb::get, "/health", ""), asio::ssl::context::tlsv11_client),
      boost::system::system_error);
}

TEST_F(AccessTest, AHandshakeIsNotWaitedForForever) {
  start({.tls_certificate = path("cert"),
         .tls_key = path("key"),
         .handshake_timeout = std::chrono::seconds(0)});
  HttpClient silent(server_->port());
  EXPECT_THROW(silent.receive(), boost::system::system_error);
}

TEST_F(AccessTest, TurnsAwayWhoIsTooMuchOverTls) {
  start({.tls_certificate = path("cert"), .tls_key = path("key"), .most_connections = 1});
  // One that waits for a request would make room; this one is sending its own.
  asio::io_context io;
  asio::ssl::context context(asio::ssl::context::tls_client);
  asio::ssl::stream<asio::ip::tcp::socket> first(io, context);
  first.next_layer().connect({asio::ip::address_v4::loopback(), server_->port()});
  first.handshake(asio::ssl::stream_base::client);
  asio::write(first, asio::buffer(std::string_view(
                         "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
                         "Expect: 100-continue\r\n\r\n")));
  std::array<char, 25> go_on = {};
  asio::read(first, asio::buffer(go_on));
  const HttpResponse second = ask_by_tls(request(http::verb::get, "/health", ""));
  EXPECT_EQ(second.result_int(), 503u);
  EXPECT_EQ(second["Retry-After"], "1");
  EXPECT_NE(second.body().find("too many"), std::string::npos);
}

TEST_F(AccessTest, OtherMachinesTakeKeysAndTls) {
  write_keys();
  const std::string cert = path("cert");
  const std::string key = path("key");
  const auto refused = [&](const HttpOptions& options) {
    const Status sound = HttpServer::check(options);
    return !sound && sound.error().code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({.host = "0.0.0.0"}));
  EXPECT_TRUE(refused({.host = "0.0.0.0", .keys_file = path("keys")}));
  EXPECT_TRUE(refused({.host = "::", .tls_certificate = cert, .tls_key = key}));
  EXPECT_FALSE(refused({.host = "127.0.0.1", .keys_file = path("keys")}));
  EXPECT_TRUE(refused({.tls_certificate = cert}));
  EXPECT_TRUE(refused({.tls_certificate = key, .tls_key = cert}));
  EVP_PKEY* const other = ::EVP_EC_gen("P-256");
  std::FILE* const file = std::fopen(path("other").c_str(), "w");
  ::PEM_write_PrivateKey(file, other, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  ::EVP_PKEY_free(other);
  EXPECT_TRUE(refused({.tls_certificate = cert, .tls_key = path("other")}));
}

TEST_F(AccessTest, AUnixSocketIsOfItsUserAlone) {
  const std::string socket_path = path("socket");
  start({.socket_path = socket_path});
  struct stat file = {};
  ASSERT_EQ(::lstat(socket_path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777U, 0600U);
  asio::io_context io;
  asio::local::stream_protocol::socket socket(io);
  socket.connect(socket_path);
  EXPECT_EQ(exchange(socket, request(http::verb::post, "/v1/chat/completions", "")).result_int(),
            200u);
  EXPECT_FALSE(
      HttpServer::start(server_->service(), {.socket_path = socket_path}, {openai::dialect()}));
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(socket_path));
  // One that a killed server left is taken over; anything else is not.
  asio::local::stream_protocol::acceptor(io, socket_path).close();
  ASSERT_TRUE(std::filesystem::exists(socket_path));
  start({.socket_path = socket_path});
  std::filesystem::remove(socket_path);
  std::ofstream(socket_path) << "somebody else's";
  EXPECT_FALSE(
      HttpServer::start(server_->service(), {.socket_path = socket_path}, {openai::dialect()}));
  server_.reset();
  EXPECT_TRUE(std::filesystem::exists(socket_path));
}

}  // namespace
}  // namespace kakeya::wire
