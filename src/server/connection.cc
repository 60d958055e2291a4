#include "server/connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "server/openai_read.h"
#include "server/page.h"
#include "server/text_routes.h"

namespace kakeya::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

#ifdef POLLRDHUP
constexpr short kPeerHasEnded = POLLRDHUP;
#else
constexpr short kPeerHasEnded = POLLHUP;  // BSD's kernels say so for either direction
#endif

struct Route {
  std::string_view path;
  http::verb verb;
};
constexpr Route kRoutes[] = {{"/v1/chat/completions", http::verb::post},
                             {"/v1/completions", http::verb::post},
                             {"/v1/embeddings", http::verb::post},
                             {"/tokenize", http::verb::post},
                             {"/detokenize", http::verb::post},
                             {"/apply-template", http::verb::post},
                             {"/v1/models", http::verb::get},
                             {"/health", http::verb::get},
                             {"/metrics", http::verb::get},
                             {"/props", http::verb::get}};

// Most bytes that are read from a client which was refused, so that it reads why.
constexpr std::size_t kMostDiscarded = std::size_t{16} << 20;
constexpr std::chrono::seconds kLastWait{2};
// How often is looked whether a client that has sent more is still there.
constexpr std::chrono::milliseconds kLook{250};

std::string_view path_of(std::string_view target) {
  return target.substr(0, target.find('?'));
}

// What the log calls a path: a client may write anything into one.
std::string_view known_route(std::string_view path) {
  const bool known = find_page_file(path) != nullptr ||
                     std::ranges::find(kRoutes, path, &Route::path) != std::end(kRoutes);
  return known ? path : "other";
}

// Asked for all the time, which says little.
bool is_quiet(std::string_view path) {
  return path == "/health" || path == "/metrics" || find_page_file(path) != nullptr;
}

// The beginning of what a client sent, for a message.
std::string quoted(std::string_view text) {
  constexpr std::size_t kMost = 60;
  return fmt::format("'{}{}'", text.substr(0, kMost), text.size() > kMost ? "..." : "");
}

}  // namespace

Connection::Connection(const Service& service) : service_(service) {}

std::string Connection::next_id(std::string_view kind) const {
  static std::atomic<std::uint64_t> count = 0;
  return fmt::format("{}-{:x}-{}", kind, service_.started, ++count);
}

void Connection::run(ClientStream::Socket socket, bool turned_away) {
  try {
    stream_ = std::make_unique<ClientStream>(std::move(socket), service_.access.tls());
    ErrorCode ignored;
    stream_->socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    peer_ = peer_of(stream_->socket());
    record_ = std::make_shared<RequestRecord>(service_.log, peer_);
    if (shake_hands()) {
      if (turned_away) {
        refuse({.status = StatusCode::kUnavailable, .message = "too many connections"});
      }
      while (!turned_away && exchange()) {
      }
      close_gently();
    }
  } catch (const std::exception&) {
    // Memory has run out, which ends this connection alone.
  }
  record_.reset();
  ErrorCode ignored;
  if (stream_) stream_->socket().close(ignored);
}

void Connection::stop() {
  asio::post(io_, [this] {
    stopping_ = true;
    if (!stream_) return;
    const auto close = [this](ErrorCode failure) {
      ErrorCode ignored;
      if (!failure) stream_->socket().close(ignored);
    };
    if (!answering_) return close({});
    stop_timer_.expires_after(kLastWait);
    stop_timer_.async_wait(close);
  });
}

bool Connection::shake_hands() {
  ClientStream::Tls* const tls = stream_->tls();
  if (tls == nullptr) return true;
  stream_->expires_after(service_.options.handshake_timeout);
  const ErrorCode failure = finish([&](auto handler) {
    tls->async_handshake(asio::ssl::stream_base::server, std::move(handler));
  });
  if (failure && !stopping_) {
    service_.log.add(LogLevel::kWarn, "handshake failed",
                     {{"peer", peer_}, {"reason", failure.message()}});
  }
  return !failure && !stopping_;
}

bool Connection::admit(const HttpFields& fields) {
  const auto text = [](boost::beast::string_view view) {
    return std::string_view(view.data(), view.size());
  };
  version_ = fields.version();
  const bool kept = keep_alive_;
  const std::string_view path = path_of(text(fields.target()));
  record_->begin(known_route(path));
  record_->id = next_id("request");
  record_->level = is_quiet(path) ? LogLevel::kDebug : LogLevel::kInfo;
  keep_alive_ = false;  // of what is not let in nothing more is read
  // A page in somebody's browser may reach this machine by a name of its own.
  if (!service_.access.knows_host(text(fields[http::field::host]))) {
    return reply(403, error_json({.message = "Host: expected localhost or a name of this server, "
                                             "got another",
                                  .code = "host_not_allowed"})) &&
           false;
  }
  // The page asks for the key that the rest takes.
  if (path != "/health" && find_page_file(path) == nullptr) {
    const auto key = service_.access.admit(text(fields[http::field::authorization]),
                                           fields.method() == http::verb::post);
    if (!key) return deny(key.error()) && false;
    if (!key->empty()) service_.metrics.count_request(*key);
    record_->key_name = *key;
  }
  keep_alive_ = kept;
  return true;
}

bool Connection::exchange() {
  record_ = std::make_shared<RequestRecord>(service_.log, peer_);
  const bool goes_on = read_and_answer();
  record_->gone = gone_;
  record_->finish();
  record_.reset();  // answers that the driver has not ended yet hold it a little longer
  return goes_on;
}

bool Connection::read_and_answer() {
  http::request_parser<http::string_body> parser;
  parser.header_limit(service_.options.most_header_bytes);
  parser.body_limit(service_.options.most_body_bytes);
  answering_ = false;
  version_ = 11;
  keep_alive_ = false;
  stream_->expires_after(service_.options.header_timeout);
  ErrorCode failure = finish([&](auto handler) {
    http::async_read_header(*stream_, buffer_, parser, std::move(handler));
  });
  if (failure) return refuse_unreadable(failure);
  keep_alive_ = parser.keep_alive();
  if (!admit(parser.get())) return false;
  stream_->expires_after(service_.options.body_timeout);
  if (boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    failure = finish([&](auto handler) {
      asio::async_write(*stream_, asio::buffer(kContinue), std::move(handler));
    });
    if (failure) return false;
  }
  failure = finish(
      [&](auto handler) { http::async_read(*stream_, buffer_, parser, std::move(handler)); });
  if (failure) return refuse_unreadable(failure);
  if (stopping_) return false;
  answering_ = true;
  arrived_ = std::chrono::steady_clock::now();
  const HttpRequest request = parser.release();
  return route(request) && keep_alive_ && !stopping_;
}

bool Connection::route(const HttpRequest& request) {
  const auto text = [](boost::beast::string_view view) {
    return std::string_view(view.data(), view.size());
  };
  const std::string_view path = path_of(text(request.target()));
  const PageFile* const page = find_page_file(path);
  const auto* const found = std::ranges::find(kRoutes, path, &Route::path);
  if (page == nullptr && found == std::end(kRoutes)) {
    return refuse(
        {.status = StatusCode::kNotFound,
         .message = fmt::format("expected a path as /v1/chat/completions, got {}", quoted(path))});
  }
  const http::verb verb = page != nullptr ? http::verb::get : found->verb;
  if (request.method() != verb) {
    const std::string allowed = verb == http::verb::post ? "POST" : "GET";
    return reply(405,
                 error_json({.message = fmt::format("expected {}, got {}", allowed,
                                                    quoted(text(request.method_string())))}),
                 {{"Allow", allowed}});
  }
  if (page != nullptr) return serve_page(*page);
  if (verb == http::verb::get) return serve_get(path);
  // Pages of other sites can send what they like, but for this type, without asking first.
  if (!text(request[http::field::content_type]).starts_with("application/json")) {
    return reply(415, error_json({.message = "Content-Type: expected application/json, got another",
                                  .code = "unsupported_media_type"}));
  }
  return serve_post(path, request);
}

bool Connection::serve_get(std::string_view path) {
  if (path == "/v1/models") {
    return reply(200, models_json(service_.options.model_name, service_.started));
  }
  if (path == "/props") return reply(200, props_json(service_.engine, service_.options));
  if (path == "/metrics") {
    return reply(200,
                 service_.metrics.text(
                     service_.driver.statistics(), service_.engine.footprint(),
                     {.lost_log_lines = service_.log.lost(), .stalls = service_.driver.stalls()}),
                 {}, "text/plain; version=0.0.4");
  }
  return serve_health();
}

bool Connection::serve_health() {
  const auto unwell = [this](std::string_view status, const std::string& reason) {
    return reply(503, json_text({{"status", status}, {"reason", reason}}));
  };
  if (!service_.driver.healthy()) return unwell("unavailable", "no requests are taken");
  if (!service_.driver.stalled()) return reply(200, R"({"status":"ok"})");
  const std::chrono::duration<double> limit = service_.options.watchdog;
  return unwell("stalled", fmt::format("a pass takes longer than {} s", limit.count()));
}

bool Connection::serve_page(const PageFile& page) {
  return reply(200, std::string(page.text),
               {{"Content-Security-Policy", std::string(kPagePolicy)},
                {"X-Content-Type-Options", "nosniff"},
                {"Referrer-Policy", "no-referrer"},
                {"Cache-Control", "no-cache"}},
               page.content_type);
}

bool Connection::serve_post(std::string_view path, const HttpRequest& request) {
  const std::string& body = request.body();
  if (path == "/v1/chat/completions") return answer(read_chat_request(body));
  if (path == "/v1/completions") return answer(read_completion_request(body));
  if (path == "/v1/embeddings") return embed(body);
  if (path == "/tokenize") return reply_with(tokenize(service_.engine, body));
  if (path == "/detokenize") return reply_with(detokenize(service_.engine, body));
  return reply_with(apply_template_route(service_.engine, body));
}

bool Connection::wait_for_mail() {
  while (!has_mail_ && !gone_) io_.run_one();
  has_mail_ = false;
  return !gone_;
}

void Connection::watch() {
  watching_ = true;
  stream_->socket().async_wait(ClientStream::Socket::wait_read, [this](ErrorCode failure) {
    watching_ = false;
    if (failure) return;
    gone_ = !is_open();
    if (!gone_) look_again();  // bytes: of the next request, or of TLS
  });
}

void Connection::look_again() {
  watching_ = true;
  look_timer_.expires_after(kLook);
  look_timer_.async_wait([this](ErrorCode failure) {
    watching_ = false;
    if (failure) return;
    gone_ = !is_open();
    if (!gone_) look_again();
  });
}

bool Connection::is_open() {
  pollfd socket = {.fd = stream_->socket().native_handle(), .events = kPeerHasEnded, .revents = 0};
  return ::poll(&socket, 1, 0) == 0;
}

void Connection::unwatch() {
  ErrorCode ignored;
  stream_->socket().cancel(ignored);
  look_timer_.cancel();
  while (watching_) io_.run_one();
}

void Connection::close_gently() {
  answering_ = false;  // a server that stops need not wait for this
  stream_->expires_after(kLastWait);
  if (ClientStream::Tls* const tls = stream_->tls(); tls != nullptr && !stopping_) {
    // It ends with what the client says next, which is read below.
    finish([&](auto handler) { tls->async_shutdown(std::move(handler)); });
  }
  ErrorCode failure;
  stream_->socket().shutdown(ClientStream::Socket::shutdown_send, failure);
  std::string bytes(16 << 10, '\0');
  for (std::size_t read = 0; !failure && read < kMostDiscarded && !stopping_;) {
    failure = finish([&](auto handler) {
      stream_->plain().async_read_some(asio::buffer(bytes),
                                       [&read, handler](ErrorCode ec, std::size_t n) {
                                         read += n;
                                         handler(ec, n);
                                       });
    });
  }
}

}  // namespace kakeya::server
