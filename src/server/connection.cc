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
#include "server/serve_request.h"
#include "server/text_routes.h"

namespace kakeya::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

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

std::string next_completion_id(bool of_chat, std::int64_t started) {
  static std::atomic<std::uint64_t> count = 0;
  return fmt::format("{}-{:x}-{}", of_chat ? "chatcmpl" : "cmpl", started, ++count);
}

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string_view path_of(std::string_view target) {
  return target.substr(0, target.find('?'));
}

// The beginning of what a client sent, for a message.
std::string quoted(std::string_view text) {
  constexpr std::size_t kMost = 60;
  return fmt::format("'{}{}'", text.substr(0, kMost), text.size() > kMost ? "..." : "");
}

}  // namespace

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

struct Choice {
  std::shared_ptr<Mailbox> mailbox;
  Answer answer;
  AnswerPiece whole = {};   // of an answer that is not streamed
  bool said_hello = false;  // of one that is
  std::unique_ptr<Ticket> ticket = {};
  std::optional<std::chrono::steady_clock::time_point> last_mail = {};
};

Connection::Connection(const Service& service) : service_(service) {}

void Connection::run(ClientStream::Socket socket, bool turned_away) {
  try {
    stream_ = std::make_unique<ClientStream>(std::move(socket), service_.access.tls());
    ErrorCode ignored;
    stream_->socket().set_option(asio::ip::tcp::no_delay(true), ignored);
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
  return !failure && !stopping_;
}

bool Connection::admit(const HttpFields& fields) {
  const auto text = [](boost::beast::string_view view) {
    return std::string_view(view.data(), view.size());
  };
  version_ = fields.version();
  const bool kept = keep_alive_;
  keep_alive_ = false;  // of what is not let in nothing more is read
  // A page in somebody's browser may reach this machine by a name of its own.
  if (!service_.access.knows_host(text(fields[http::field::host]))) {
    return reply(403, error_json({.message = "Host: expected localhost or a name of this server, "
                                             "got another",
                                  .code = "host_not_allowed"})) &&
           false;
  }
  const std::string_view path = path_of(text(fields.target()));
  // The page asks for the key that the rest takes.
  if (path != "/health" && find_page_file(path) == nullptr) {
    const auto key = service_.access.admit(text(fields[http::field::authorization]),
                                           fields.method() == http::verb::post);
    if (!key) return deny(key.error()) && false;
    if (!key->empty()) service_.metrics.count_request(*key);
  }
  keep_alive_ = kept;
  return true;
}

bool Connection::exchange() {
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
                 service_.metrics.text(service_.driver.statistics(), service_.engine.footprint()),
                 {}, "text/plain; version=0.0.4");
  }
  const bool healthy = service_.driver.healthy();
  return reply(healthy ? 200 : 503, healthy ? R"({"status":"ok"})" : R"({"status":"unavailable"})");
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
  if (path == "/v1/embeddings") {
    return reply_with(embeddings(service_.engine, service_.options.model_name, body));
  }
  if (path == "/tokenize") return reply_with(tokenize(service_.engine, body));
  if (path == "/detokenize") return reply_with(detokenize(service_.engine, body));
  return reply_with(apply_template_route(service_.engine, body));
}

bool Connection::answer(const Outcome<ServeRequest>& wish) {
  if (!wish) return refuse(wish.error());
  const auto known = check_model(service_.options.model_name, wish->model);
  if (!known) return refuse(known.error());
  auto prepared = make_request(service_.engine, *wish, service_.options.draft_length);
  if (!prepared) return refuse(prepared.error());
  // What is not streamed is taken as it comes, and kept until it is whole.
  const std::size_t most_unread = wish->stream
                                      ? service_.options.most_unread_tokens
                                      : static_cast<std::size_t>(prepared->generate.max_tokens);
  has_mail_ = false;
  // A completion is the text as it is.
  const auto markers = wish->prompt ? std::nullopt : service_.channel_markers;
  std::vector<Choice> choices;
  for (int index = 0; index < wish->choices; ++index) {
    auto answer = Answer::create(service_.tokenizer, wish->stop_strings, markers);
    if (!answer) {
      Refusal refusal = refusal_of(answer.error());
      refusal.parameter = "stop";
      return refuse(refusal);
    }
    auto mailbox = std::make_shared<Mailbox>(
        most_unread, [this] { asio::post(io_, [this] { has_mail_ = true; }); });
    Request request = *prepared;
    request.generate.sampling.seed += static_cast<std::uint64_t>(index);
    const auto id = service_.driver.submit(std::move(request), mailbox);
    if (!id) return refuse(refusal_of(id.error()));  // tickets end those before it
    choices.push_back({.mailbox = mailbox, .answer = std::move(*answer)});
    choices.back().ticket = std::make_unique<Ticket>(service_.driver, *id, mailbox);
  }
  const CompletionWriter writer(service_.tokenizer, *wish,
                                next_completion_id(!wish->prompt.has_value(), service_.started),
                                unix_time(), std::ssize(prepared->prompt));
  watch();
  const bool served = wish->stream ? stream_answers(choices, writer, wish->include_usage)
                                   : whole_answers(choices, writer);
  unwatch();
  return served && !gone_;
}

Status Connection::add_mail(Choice& choice, AnswerPiece& piece) {
  Mail mail = choice.mailbox->take();
  if (!mail.tokens.empty()) {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> since = now - choice.last_mail.value_or(arrived_);
    if (choice.last_mail) {
      service_.metrics.observe_gap(since.count());
    } else {
      service_.metrics.observe_first_token(since.count());
    }
    choice.last_mail = now;
  }
  Status added = choice.answer.add(std::move(mail), piece);
  if (choice.answer.finished()) choice.ticket.reset();  // a stop string may have ended it earlier
  return added;
}

bool Connection::whole_answers(std::vector<Choice>& choices, const CompletionWriter& writer) {
  const auto finished = [](const Choice& choice) { return choice.answer.finished(); };
  while (!std::ranges::all_of(choices, finished)) {
    if (!wait_for_mail()) return false;
    for (Choice& choice : choices) {
      if (finished(choice)) continue;
      const Status added = add_mail(choice, choice.whole);
      if (!added) return refuse(refusal_of(added.error()));
    }
  }
  std::vector<WholeAnswer> answers;
  for (Choice& choice : choices) {
    answers.push_back({std::move(choice.whole), choice.answer.reason()});
  }
  return reply(200, writer.completion(answers));
}

bool Connection::stream_answers(std::vector<Choice>& choices,
                                const CompletionWriter& writer,
                                bool include_usage) {
  // The first mail tells whether there is an answer at all, which the status line has to say.
  bool begun = false;
  std::int64_t tokens = 0;
  std::size_t unfinished = choices.size();
  while (unfinished > 0) {
    if (!wait_for_mail()) return false;
    std::string events;
    for (int index = 0; index < static_cast<int>(choices.size()); ++index) {
      Choice& choice = choices[static_cast<std::size_t>(index)];
      if (choice.answer.finished()) continue;
      AnswerPiece piece;
      const Status added = add_mail(choice, piece);
      if (!added && !begun && events.empty()) return refuse(refusal_of(added.error()));
      if (!std::exchange(choice.said_hello, true) && writer.is_chat()) {
        events += server_event(writer.first_chunk(index));
      }
      if (writer.says_anything(piece)) events += server_event(writer.chunk(index, piece));
      if (!added) {
        keep_alive_ = false;
        events += server_event(error_json(refusal_of(added.error())));
        return (begun || write_stream_header()) && write_piece(events) && end_stream();
      }
      if (!choice.answer.finished()) continue;
      events += server_event(writer.last_chunk(index, choice.answer.reason()));
      tokens += choice.answer.token_count();
      --unfinished;
    }
    if (events.empty()) continue;
    if (!std::exchange(begun, true) && !write_stream_header()) return false;
    if (!write_piece(events)) return false;
  }
  std::string rest = include_usage ? server_event(writer.usage_chunk(tokens)) : "";
  rest += kLastEvent;
  return write_piece(rest) && end_stream();
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
  pollfd socket = {.fd = stream_->socket().native_handle(), .events = POLLRDHUP, .revents = 0};
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
