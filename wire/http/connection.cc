#include "wire/http/connection.h"

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <exception>
#include <utility>

namespace kakeya::wire {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

// The most bytes that are read from a client which was refused, so that it reads why.
constexpr std::size_t kMostDiscarded = std::size_t{16} << 20;
constexpr std::chrono::seconds kLastWait{2};

// The most bytes that are kept of what a client has sent ahead: of a header, of the line before a
// chunk, of what follows the last one.
constexpr std::size_t kMostBuffered = std::size_t{64} << 10;

// A body's framing takes no more than the body and this.
constexpr std::size_t kMostFraming = std::size_t{64} << 10;

// The most bytes of a body that says nothing, of a request for something that takes none.
constexpr std::size_t kMostIdleBody = 4096;

}  // namespace

Connection::Connection(const Site& site)
    : site_(site), buffer_(std::max<std::size_t>(kMostBuffered, site.options.most_header_bytes)) {}

void Connection::run(ClientStream::Socket socket, bool turned_away) {
  try {
    stream_ = std::make_unique<ClientStream>(std::move(socket), site_.access.tls());
    ErrorCode ignored;
    stream_->socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    peer_ = peer_of(stream_->socket());
    if (shake_hands()) {
      if (turned_away) {
        Exchange(site_, loop_, *stream_, peer_, stopping_)
            .refuse({.status = StatusCode::kUnavailable, .message = "too many connections"});
      }
      while (!turned_away && serve_one()) {
      }
      close_gently();
    }
  } catch (const std::exception&) {
    // Memory has run out, which ends this connection alone.
  }
  ErrorCode ignored;
  if (stream_) stream_->socket().close(ignored);
  // The connection itself may be kept a while.
  buffer_.clear();
  buffer_.shrink_to_fit();
}

void Connection::stop() {
  asio::post(context(), [this] {
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
  asio::post(context(), [this] {
    ErrorCode ignored;
    if (!idle_) leaving_ = false;
    if (stream_ && idle_) stream_->socket().close(ignored);
  });
}

bool Connection::shake_hands() {
  ClientStream::Tls* const tls = stream_->tls();
  if (tls == nullptr) return true;
  stream_->expires_after(site_.options.handshake_timeout);
  begin_idle();
  const ErrorCode failure = loop_.finish(
      [&](Completion done) { tls->async_handshake(asio::ssl::stream_base::server, done); });
  end_idle();
  if (failure && !stopping_) {
    site_.models.server().log().add(service::LogLevel::kWarn, "handshake failed",
                                    {{"peer", peer_}, {"reason", failure.message()}});
  }
  return !failure && !stopping_;
}

bool Connection::serve_one() {
  Exchange exchange(site_, loop_, *stream_, peer_, stopping_);
  answering_ = false;
  // A request that was refused before all of it was read ends the connection: the bytes behind it
  // are not a request, whatever they look like.
  return read_and_answer(exchange) && exchange.keeps_alive();
}

bool Connection::read_and_answer(Exchange& exchange) {
  HttpParser parser;
  parser.header_limit(site_.options.most_header_bytes);
  parser.body_limit(site_.options.most_body_bytes);
  stream_->expires_after(site_.options.header_timeout);
  begin_idle();
  ErrorCode failure = loop_.finish(
      [&](Completion done) { http::async_read_header(*stream_, buffer_, parser, done); });
  end_idle();
  if (failure) return exchange.refuse_unreadable(failure);
  if (!exchange.admit(parser.get(), parser.keep_alive())) return false;
  const bool waits = boost::beast::iequals(parser.get()[http::field::expect], "100-continue");
  if (waits && !exchange.say_continue()) return false;
  stream_->expires_after(site_.options.body_timeout);
  const bool takes_body = parser.get().method() == http::verb::post;
  failure = read_body(parser, takes_body ? site_.options.most_body_bytes : kMostIdleBody);
  if (failure) return exchange.refuse_unreadable(failure);
  if (stopping_) return false;
  answering_ = true;
  exchange.take(parser.release());
  const service::Answering answering(site_.models.server());
  return dispatch(exchange);
}

Connection::ErrorCode Connection::read_body(HttpParser& parser, std::size_t most_bytes) {
  const auto announced = parser.content_length();
  if (announced && *announced > most_bytes) return http::error::body_limit;
  parser.eager(true);
  std::size_t read = 0;
  ErrorCode failure;
  while (!failure && !parser.is_done()) {
    failure = loop_.finish(
        [&](Completion done) { http::async_read_some(*stream_, buffer_, parser, done); }, &read);
    const bool too_long =
        parser.get().body().size() > most_bytes || read > 2 * most_bytes + kMostFraming;
    if (!failure && too_long) failure = http::error::body_limit;
  }
  return failure;
}

void Connection::close_gently() {
  answering_ = false;  // a server that stops need not wait for this
  leaving_ = true;     // nor need a newcomer
  stream_->expires_after(kLastWait);
  if (ClientStream::Tls* const tls = stream_->tls(); tls != nullptr && !stopping_) {
    // It ends with what the client says next, which is read below.
    loop_.finish([&](Completion done) { tls->async_shutdown(done); });
  }
  ErrorCode failure;
  stream_->socket().shutdown(ClientStream::Socket::shutdown_send, failure);
  std::string bytes(16 << 10, '\0');
  for (std::size_t read = 0; !failure && read < kMostDiscarded && !stopping_;) {
    failure = loop_.finish(
        [&](Completion done) { stream_->plain().async_read_some(asio::buffer(bytes), done); },
        &read);
  }
}

}  // namespace kakeya::wire
