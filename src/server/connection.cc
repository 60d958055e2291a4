#include "server/connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "server/local_address.h"
#include "server/openai_read.h"
#include "server/serve_request.h"

namespace kakeya::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr std::string_view kChatPath = "/v1/chat/completions";

// Most bytes that are read from a client which was refused, so that it reads why.
constexpr std::size_t kMostDiscarded = std::size_t{16} << 20;
constexpr std::chrono::seconds kLastWait{2};

std::string next_completion_id(std::int64_t started) {
  static std::atomic<std::uint64_t> count = 0;
  return fmt::format("chatcmpl-{:x}-{}", started, ++count);
}

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// The beginning of what a client sent, for a message.
std::string quoted(std::string_view text) {
  constexpr std::size_t kMost = 60;
  return fmt::format("'{}{}'", text.substr(0, kMost), text.size() > kMost ? "..." : "");
}

// A request that the driver has; ended when this goes, if it has not ended by then.
class Ticket {
 public:
  Ticket(Driver& driver, RequestId id, std::shared_ptr<Mailbox> mailbox)
      : driver_(driver), id_(id), mailbox_(std::move(mailbox)) {}
  ~Ticket() {
    mailbox_->close();
    driver_.cancel(id_);
  }
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

 private:
  Driver& driver_;
  RequestId id_;
  std::shared_ptr<Mailbox> mailbox_;
};

}  // namespace

Connection::Connection(const Service& service) : service_(service) {}

template <typename Start>
Connection::ErrorCode Connection::finish(const Start& start) {
  std::optional<ErrorCode> outcome;
  start([&outcome](ErrorCode failure, std::size_t = 0) { outcome = failure; });
  while (!outcome) io_.run_one();
  return *outcome;
}

void Connection::run(asio::ip::tcp::socket socket) {
  try {
    stream_ = std::make_unique<boost::beast::tcp_stream>(std::move(socket));
    ErrorCode ignored;
    stream_->socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    while (exchange()) {
    }
    close_gently();
  } catch (const std::exception&) {
    // Memory has run out, which ends this connection alone.
  }
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

bool Connection::exchange() {
  http::request_parser<http::string_body> parser;
  parser.header_limit(service_.options.most_header_bytes);
  parser.body_limit(service_.options.most_body_bytes);
  answering_ = false;
  version_ = 11;
  stream_->expires_after(service_.options.header_timeout);
  ErrorCode failure = finish([&](auto handler) {
    http::async_read_header(*stream_, buffer_, parser, std::move(handler));
  });
  if (failure) return refuse_unreadable(failure);
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
  const HttpRequest request = parser.release();
  version_ = request.version();
  keep_alive_ = request.keep_alive();
  return route(request) && keep_alive_ && !stopping_;
}

bool Connection::route(const HttpRequest& request) {
  const auto text = [](boost::beast::string_view view) {
    return std::string_view(view.data(), view.size());
  };
  // A page in somebody's browser may reach this machine by a name of its own.
  if (!is_local_host(text(request[http::field::host]))) {
    keep_alive_ = false;
    return reply(403, error_json({.message = "Host: expected localhost or its address, got another",
                                  .code = "host_not_allowed"}));
  }
  const std::string_view target = text(request.target());
  const std::string_view path = target.substr(0, target.find('?'));
  const bool is_chat = path == kChatPath;
  if (!is_chat && path != "/v1/models" && path != "/health") {
    return refuse({.status = StatusCode::kNotFound,
                   .message = fmt::format("expected {}, /v1/models or /health, got {}", kChatPath,
                                          quoted(path))});
  }
  const http::verb verb = is_chat ? http::verb::post : http::verb::get;
  if (request.method() != verb) {
    const std::string allowed = is_chat ? "POST" : "GET";
    return reply(405,
                 error_json({.message = fmt::format("expected {}, got {}", allowed,
                                                    quoted(text(request.method_string())))}),
                 {{http::field::allow, allowed}});
  }
  if (path == "/health") {
    const bool healthy = service_.driver.healthy();
    return reply(healthy ? 200 : 503,
                 healthy ? R"({"status":"ok"})" : R"({"status":"unavailable"})");
  }
  if (!is_chat) {
    return reply(200, models_json(service_.options.model_name, service_.started));
  }
  // Pages of other sites can send what they like, but for this type, without asking first.
  if (!text(request[http::field::content_type]).starts_with("application/json")) {
    return reply(415, error_json({.message = "Content-Type: expected application/json, got another",
                                  .code = "unsupported_media_type"}));
  }
  return chat(request);
}

bool Connection::chat(const HttpRequest& request) {
  const auto wish = read_chat_request(request.body());
  if (!wish) return refuse(wish.error());
  const std::string& name = service_.options.model_name;
  if (wish->model != name) {
    return refuse({.status = StatusCode::kNotFound,
                   .message = fmt::format("model: expected {}, got {}", name, quoted(wish->model)),
                   .parameter = "model",
                   .code = "model_not_found"});
  }
  auto answer = Answer::create(service_.tokenizer, wish->stop_strings);
  if (!answer) {
    Refusal refusal = refusal_of(answer.error());
    refusal.parameter = "stop";
    return refuse(refusal);
  }
  auto prepared = make_request(service_.engine, *wish, service_.options.draft_length);
  if (!prepared) return refuse(prepared.error());
  const std::int64_t prompt_tokens = std::ssize(prepared->prompt);
  // What is not streamed is taken as it comes, and kept until it is whole.
  const std::size_t most_unread = wish->stream
                                      ? service_.options.most_unread_tokens
                                      : static_cast<std::size_t>(prepared->generate.max_tokens);
  has_mail_ = false;
  auto mailbox = std::make_shared<Mailbox>(
      most_unread, [this] { asio::post(io_, [this] { has_mail_ = true; }); });
  const auto id = service_.driver.submit(std::move(*prepared), mailbox);
  if (!id) return refuse(refusal_of(id.error()));
  const Ticket ticket(service_.driver, *id, mailbox);
  const CompletionWriter writer(service_.tokenizer, *wish, next_completion_id(service_.started),
                                unix_time(), prompt_tokens);
  watch();
  const bool served = wish->stream ? stream_answer(*mailbox, *answer, writer, wish->include_usage)
                                   : whole_answer(*mailbox, *answer, writer);
  unwatch();
  return served && !gone_;
}

bool Connection::whole_answer(Mailbox& mailbox, Answer& answer, const CompletionWriter& writer) {
  AnswerPiece whole;
  while (!answer.finished()) {
    if (!wait_for_mail()) return false;
    const Status added = answer.add(mailbox.take(), whole);
    if (!added) return refuse(refusal_of(added.error()));
  }
  return reply(200, writer.completion(whole, answer.reason()));
}

bool Connection::stream_answer(Mailbox& mailbox,
                               Answer& answer,
                               const CompletionWriter& writer,
                               bool include_usage) {
  // The first mail tells whether there is an answer at all, which the status line has to say.
  bool begun = false;
  const auto begin = [&] {
    if (begun) return true;
    begun = true;
    return write_stream_header() && write_piece(server_event(writer.first_chunk()));
  };
  while (!answer.finished()) {
    if (!wait_for_mail()) return false;
    AnswerPiece piece;
    const Status added = answer.add(mailbox.take(), piece);
    if (!added && !begun) return refuse(refusal_of(added.error()));
    if (!begin()) return false;
    if (writer.says_anything(piece) && !write_piece(server_event(writer.chunk(piece)))) {
      return false;
    }
    if (!added) {
      keep_alive_ = false;
      return write_piece(server_event(error_json(refusal_of(added.error())))) && end_stream();
    }
  }
  std::string rest = server_event(writer.last_chunk(answer.reason()));
  if (include_usage) rest += server_event(writer.usage_chunk(answer.token_count()));
  rest += kLastEvent;
  return write_piece(rest) && end_stream();
}

bool Connection::refuse(const Refusal& refusal) {
  const unsigned status = http_error(refusal.status).status;
  Headers headers;
  if (status == 429 || status == 503) headers.emplace_back(http::field::retry_after, "1");
  return reply(status, error_json(refusal), headers);
}

// A request that is none, too large or too slow.
bool Connection::refuse_unreadable(ErrorCode failure) {
  keep_alive_ = false;
  if (failure == http::error::body_limit) {
    return reply(413, error_json({.message = fmt::format("the body: expected at most {} bytes, "
                                                         "got more",
                                                         service_.options.most_body_bytes),
                                  .code = "body_too_large"}));
  }
  if (failure == http::error::header_limit) {
    return reply(431, error_json({.message = fmt::format("the header: expected at most {} bytes, "
                                                         "got more",
                                                         service_.options.most_header_bytes)}));
  }
  // The client has gone, or was too slow: nobody is there to be told.
  if (failure.category() != http::make_error_code(http::error::bad_method).category()) return false;
  if (failure == http::error::end_of_stream || failure == http::error::partial_message)
    return false;
  return reply(400, error_json({.message = "expected a request of HTTP/1.1, got something else"}));
}

bool Connection::reply(unsigned status, std::string body, const Headers& headers) {
  http::response<http::string_body> response(static_cast<http::status>(status), version_);
  response.set(http::field::server, "kakeya");
  response.set(http::field::content_type, "application/json");
  for (const auto& [name, value] : headers) response.set(name, value);
  response.keep_alive(keep_alive_ && !stopping_);
  response.body() = std::move(body);
  response.prepare_payload();
  stream_->expires_after(service_.options.write_timeout);
  const ErrorCode failure =
      finish([&](auto handler) { http::async_write(*stream_, response, std::move(handler)); });
  return !failure;
}

bool Connection::write_stream_header() {
  http::response<http::empty_body> response(http::status::ok, version_);
  response.set(http::field::server, "kakeya");
  response.set(http::field::content_type, "text/event-stream");
  response.set(http::field::cache_control, "no-cache");
  // Before HTTP/1.1 there are no chunks: the answer ends with the connection.
  if (version_ < 11) keep_alive_ = false;
  response.keep_alive(keep_alive_);
  if (version_ >= 11) response.chunked(true);
  http::response_serializer<http::empty_body> serializer(response);
  stream_->expires_after(service_.options.write_timeout);
  const ErrorCode failure = finish(
      [&](auto handler) { http::async_write_header(*stream_, serializer, std::move(handler)); });
  return !failure;
}

bool Connection::write_piece(std::string_view text) {
  const asio::const_buffer bytes(text.data(), text.size());
  stream_->expires_after(service_.options.write_timeout);
  const ErrorCode failure = finish([&](auto handler) {
    if (version_ >= 11) {
      asio::async_write(*stream_, http::make_chunk(bytes), std::move(handler));
    } else {
      asio::async_write(*stream_, bytes, std::move(handler));
    }
  });
  return !failure && !gone_;
}

bool Connection::end_stream() {
  if (version_ < 11) return true;
  const ErrorCode failure = finish([&](auto handler) {
    asio::async_write(*stream_, http::make_chunk_last(), std::move(handler));
  });
  return !failure;
}

bool Connection::wait_for_mail() {
  while (!has_mail_ && !gone_) io_.run_one();
  has_mail_ = false;
  return !gone_;
}

void Connection::watch() {
  watching_ = true;
  stream_->socket().async_wait(asio::ip::tcp::socket::wait_read, [this](ErrorCode failure) {
    watching_ = false;
    if (failure) return;
    char byte = 0;
    const ssize_t got =
        ::recv(stream_->socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    // A byte is the next request's: the client is there.
    gone_ = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
  });
}

void Connection::unwatch() {
  ErrorCode ignored;
  stream_->socket().cancel(ignored);
  while (watching_) io_.run_one();
}

void Connection::close_gently() {
  answering_ = false;  // a server that stops need not wait for this
  ErrorCode failure;
  stream_->socket().shutdown(asio::ip::tcp::socket::shutdown_send, failure);
  std::string bytes(16 << 10, '\0');
  stream_->expires_after(kLastWait);
  for (std::size_t read = 0; !failure && read < kMostDiscarded && !stopping_;) {
    failure = finish([&](auto handler) {
      stream_->async_read_some(asio::buffer(bytes), [&read, handler](ErrorCode ec, std::size_t n) {
        read += n;
        handler(ec, n);
      });
    });
  }
}

}  // namespace kakeya::server
