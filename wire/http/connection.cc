#include "wire/http/connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "wire/http/page.h"
#include "wire/http/routes.h"

namespace kakeya::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

#ifdef POLLRDHUP
constexpr short kPeerHasEnded = POLLRDHUP;
#else
constexpr short kPeerHasEnded = POLLHUP;  // BSD's kernels say so for either direction
#endif

// The most bytes that are read from a client which was refused, so that it reads why.
constexpr std::size_t kMostDiscarded = std::size_t{16} << 20;
constexpr std::chrono::seconds kLastWait{2};
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
// The time between looks whether a client that has sent more is still there.
constexpr std::chrono::milliseconds kLook{100};

// The most bytes that are kept of what a client has sent ahead: of a header, of the line before a
// chunk, of what follows the last one.
constexpr std::size_t kMostBuffered = std::size_t{64} << 10;

// A body's framing takes no more than the body and this.
constexpr std::size_t kMostFraming = std::size_t{64} << 10;

// The most bytes of a body that says nothing, of a request for something that takes none.
constexpr std::size_t kMostIdleBody = 4096;

}  // namespace

Connection::Connection(const Service& service)
    : service_(service),
      buffer_(std::max<std::size_t>(kMostBuffered, service.options.most_header_bytes)) {}

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
  // The connection itself may be kept a while.
  buffer_.clear();
  buffer_.shrink_to_fit();
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

void Connection::begin_idle() {
  idle_ = true;
  idle_since_ = std::chrono::steady_clock::now().time_since_epoch().count();
}

void Connection::end_idle() {
  idle_ = false;
  idle_since_ = kBusy;
}

void Connection::make_room() {
  leaving_ = true;
  idle_since_ = kBusy;  // nobody needs to ask again
  asio::post(io_, [this] {
    ErrorCode ignored;
    if (!idle_) leaving_ = false;
    if (stream_ && idle_) stream_->socket().close(ignored);
  });
}

bool Connection::shake_hands() {
  ClientStream::Tls* const tls = stream_->tls();
  if (tls == nullptr) return true;
  stream_->expires_after(service_.options.handshake_timeout);
  begin_idle();
  const ErrorCode failure = finish([&](auto handler) {
    tls->async_handshake(asio::ssl::stream_base::server, std::move(handler));
  });
  end_idle();
  if (failure && !stopping_) {
    service_.log.add(LogLevel::kWarn, "handshake failed",
                     {{"peer", peer_}, {"reason", failure.message()}});
  }
  return !failure && !stopping_;
}

bool Connection::admit(const HttpFields& fields) {
  version_ = fields.version();
  is_head_ = fields.method() == http::verb::head;
  const bool kept = keep_alive_;
  const std::string_view path = path_of(view_of(fields.target()));
  record_->begin(known_route(path));
  record_->id = next_id("request");
  record_->level = is_quiet(path) ? LogLevel::kDebug : LogLevel::kInfo;
  keep_alive_ = false;  // of what is not let in nothing more is read
  if (!admit_host(fields) || !admit_key(fields, path) || !set_deadline(fields)) return false;
  keep_alive_ = kept;
  return true;
}

bool Connection::admit_host(const HttpFields& fields) {
  const std::size_t hosts = fields.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && version_ == 11)) {
    return reply(400, error_json({.message = fmt::format("Host: expected one, got {}",
                                                         hosts == 0 ? "none" : "several")})) &&
           false;
  }
  const std::string_view origin = view_of(fields[http::field::origin]);
  if (service_.access.lets_read(origin)) origin_ = origin;
  // A page in somebody's browser may reach this machine by a name of its own.
  const std::string_view host = view_of(fields[http::field::host]);
  if (service_.access.knows_host(host)) return true;
  return reply(403, error_json({.message = fmt::format("Host: expected localhost or a name of this "
                                                       "server, got {}",
                                                       quoted(host)),
                                .code = "host_not_allowed"})) &&
         false;
}

bool Connection::admit_key(const HttpFields& fields, std::string_view path) {
  // The page asks for the key that the rest takes, and browsers ask what they may without one.
  const bool is_open = path == "/health" || find_page_file(path) != nullptr ||
                       fields.method() == http::verb::options;
  if (is_open) return true;
  const Credentials given = {.authorization = view_of(fields[http::field::authorization]),
                             .x_api_key = view_of(fields["x-api-key"]),
                             .api_key = view_of(fields["api-key"])};
  const auto key = service_.access.admit(given, fields.method() == http::verb::post);
  if (!key) return deny(key.error()) && false;
  if (!key->empty()) service_.metrics.count_request(*key);
  record_->key_name = *key;
  return true;
}

bool Connection::set_deadline(const HttpFields& fields) {
  using Seconds = std::chrono::duration<double>;
  constexpr double kMost = 1e6;
  Seconds limit = service_.options.request_timeout;
  const std::string_view given = view_of(fields["X-Request-Timeout"]);
  if (!given.empty()) {
    double seconds = 0.0;
    const auto parsed = std::from_chars(given.data(), given.data() + given.size(), seconds);
    const bool sound = parsed.ec == std::errc() && parsed.ptr == given.data() + given.size() &&
                       seconds > 0.0 && seconds <= kMost;
    if (!sound) {
      return reply(400, error_json({.message = fmt::format("X-Request-Timeout: expected seconds, "
                                                           "above 0 and at most {}, got {}",
                                                           kMost, quoted(given))})) &&
             false;
    }
    limit = limit.count() > 0.0 ? std::min(limit, Seconds(seconds)) : Seconds(seconds);
  }
  deadline_.reset();
  if (limit.count() > 0.0) {
    deadline_ = std::chrono::steady_clock::now() +
                std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit);
  }
  return true;
}

bool Connection::exchange() {
  record_ = std::make_shared<RequestRecord>(service_.log, peer_);
  // A request that was refused before all of it was read has ended keep_alive_: the bytes behind it
  // are not a request, whatever they look like.
  const bool goes_on = read_and_answer() && keep_alive_ && !stopping_;
  record_->gone = gone_;
  record_->finish();
  record_.reset();  // answers that the driver has not ended yet hold it a little longer
  return goes_on;
}

bool Connection::read_and_answer() {
  HttpParser parser;
  parser.header_limit(service_.options.most_header_bytes);
  parser.body_limit(service_.options.most_body_bytes);
  answering_ = false;
  version_ = 11;
  is_head_ = false;
  keep_alive_ = false;
  streaming_ = false;
  origin_.clear();
  stream_->expires_after(service_.options.header_timeout);
  begin_idle();
  ErrorCode failure = finish([&](auto handler) {
    http::async_read_header(*stream_, buffer_, parser, std::move(handler));
  });
  end_idle();
  if (failure) return refuse_unreadable(failure);
  keep_alive_ = parser.keep_alive();
  if (!admit(parser.get())) return false;
  stream_->expires_after(service_.options.body_timeout);
  if (boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    failure = finish([&](auto handler) {
      asio::async_write(*stream_, asio::buffer(kContinue), std::move(handler));
    });
    if (failure) return false;
  }
  const bool takes_body = parser.get().method() == http::verb::post;
  failure = read_body(parser, takes_body ? service_.options.most_body_bytes : kMostIdleBody);
  if (failure) return refuse_unreadable(failure);
  if (stopping_) return false;
  answering_ = true;
  arrived_ = std::chrono::steady_clock::now();
  const HttpRequest request = parser.release();
  ++service_.answering;
  const bool goes_on = route(request);
  --service_.answering;
  return goes_on;
}

Connection::ErrorCode Connection::read_body(HttpParser& parser, std::size_t most_bytes) {
  const auto announced = parser.content_length();
  if (announced && *announced > most_bytes) return http::error::body_limit;
  parser.eager(true);
  std::size_t read = 0;
  ErrorCode failure;
  while (!failure && !parser.is_done()) {
    failure = finish([&](auto handler) {
      http::async_read_some(*stream_, buffer_, parser,
                            [&read, handler](ErrorCode ec, std::size_t bytes) {
                              read += bytes;
                              handler(ec, bytes);
                            });
    });
    const bool too_long =
        parser.get().body().size() > most_bytes || read > 2 * most_bytes + kMostFraming;
    if (!failure && too_long) failure = http::error::body_limit;
  }
  return failure;
}

bool Connection::wait_for_mail(std::optional<std::chrono::milliseconds> limit) {
  bool late = false;
  bool timed = limit.has_value();
  if (timed) {
    ping_timer_.expires_after(*limit);
    ping_timer_.async_wait([&](ErrorCode failure) {
      timed = false;
      late = !failure;
    });
  }
  while (!has_mail_ && !gone_ && !late) {
    io_.run_one();
    if (half_closed_ && !gone_ && !std::exchange(probed_, true)) probe();
  }
  ping_timer_.cancel();
  while (timed) io_.run_one();
  if (!has_mail_ || gone_) return false;
  has_mail_ = false;
  return true;
}

void Connection::watch() {
  watching_ = true;
  half_closed_ = false;
  probed_ = false;
  stream_->socket().async_wait(ClientStream::Socket::wait_read, [this](ErrorCode failure) {
    watching_ = false;
    if (failure || unwatching_) return;
    look();
    if (!gone_) look_again();  // bytes: of the next request, or of TLS
  });
}

void Connection::look_again() {
  watching_ = true;
  look_timer_.expires_after(kLook);
  look_timer_.async_wait([this](ErrorCode failure) {
    watching_ = false;
    if (failure || unwatching_) return;
    look();
    if (!gone_) look_again();
  });
}

void Connection::look() {
  if (!stream_->socket().is_open()) {
    gone_ = true;
    return;
  }
  pollfd socket = {.fd = stream_->socket().native_handle(), .events = kPeerHasEnded, .revents = 0};
  if (::poll(&socket, 1, 0) <= 0) return;
  // A client that ends TLS ends both sides of it.
  const bool closed = (socket.revents & ~kPeerHasEnded) != 0 || stream_->tls() != nullptr;
  if (closed) gone_ = true;
  half_closed_ = true;
}

void Connection::probe() {
  if (streaming_) {
    gone_ = !write_piece(": ping\n\n");
  } else if (version_ >= 11) {
    // Clients expect that this comes before an answer, asked for or not.
    stream_->expires_after(service_.options.write_timeout);
    gone_ = static_cast<bool>(finish([&](auto handler) {
      asio::async_write(*stream_, asio::buffer(kContinue), std::move(handler));
    }));
  }
}

void Connection::unwatch() {
  // A handler that is queued by now cannot be cancelled any more, and must not begin to wait anew.
  unwatching_ = true;
  ErrorCode ignored;
  stream_->socket().cancel(ignored);
  look_timer_.cancel();
  while (watching_) io_.run_one();
  unwatching_ = false;
}

void Connection::close_gently() {
  answering_ = false;  // a server that stops need not wait for this
  leaving_ = true;     // nor need a newcomer
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
