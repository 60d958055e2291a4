#include "wire/client/chat_client.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <limits>
#include <optional>
#include <utility>

#include "base/status.h"
#include "wire/http/client_stream.h"
#include "wire/http/loop.h"

namespace kakeya::client {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using ErrorCode = boost::system::error_code;
using Json = nlohmann::json;
using wire::ClientStream;
using wire::Completion;

// The limit of bytes held before they are used: an event of the stream, or the words of an error.
constexpr std::size_t kMostHeldBytes = std::size_t{4} << 20;
constexpr std::chrono::milliseconds kPoll{50};

// One request and its response, which comes in pieces.
class Exchange {
 public:
  Exchange(const ChatClientOptions& options, const ChatClient::Stop& stop)
      : options_(options), stop_(stop) {
    parser_.body_limit(std::numeric_limits<std::uint64_t>::max());
  }

  Status connect();
  Status send(http::verb verb, const char* target, const std::string& body);
  // Appends what comes next of the body; false at its end, or if the caller has enough.
  Result<bool> read(std::string& out);

  unsigned status() const { return parser_.get().result_int(); }
  bool stopped() const { return stopped_; }

 private:
  template <typename Start>
  ErrorCode finish(const Start& start);
  Status gone(const ErrorCode& failure) const;

  const ChatClientOptions& options_;
  const ChatClient::Stop& stop_;
  asio::io_context io_{1};
  asio::ssl::context tls_{asio::ssl::context::tls_client};
  std::optional<ClientStream> stream_;
  boost::beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
  bool stopped_ = false;
};

template <typename Start>
ErrorCode Exchange::finish(const Start& start) {
  Completion::Outcome outcome;
  io_.restart();  // it has stopped when the operation before this one was over
  start(Completion{&outcome});
  while (!outcome.failure) {
    io_.run_for(kPoll);
    if (stopped_ || outcome.failure || !stop_()) continue;
    stopped_ = true;
    ErrorCode ignored;
    stream_->socket().close(ignored);
  }
  return *outcome.failure;
}

Status Exchange::gone(const ErrorCode& failure) const {
  if (stopped_) return {};
  return error(StatusCode::kUnavailable, "the connection to the server is lost: {}",
               failure.message());
}

Status Exchange::connect() {
  const ServerAddress& address = options_.address;
  ErrorCode failure;
  if (!address.socket_path.empty()) {
    asio::local::stream_protocol::socket socket(io_);
    socket.connect(address.socket_path, failure);
    if (!failure) stream_.emplace(std::move(socket), nullptr);
  } else {
    asio::ip::tcp::socket socket(io_);
    asio::ip::tcp::resolver resolver(io_);
    const auto found = resolver.resolve(address.host, address.port, failure);
    if (!failure) asio::connect(socket, found, failure);
    if (!failure) stream_.emplace(std::move(socket), address.tls ? &tls_ : nullptr);
  }
  if (failure) {
    return error(StatusCode::kUnavailable, "the server cannot be reached: {}", failure.message());
  }
  if (!address.tls) return {};
  if (options_.authorities.empty()) {
    tls_.set_default_verify_paths(failure);
  } else {
    tls_.load_verify_file(options_.authorities, failure);
  }
  if (failure) return invalid_argument("no certificates are to be had: {}", failure.message());
  ClientStream::Tls& tls = *stream_->tls();
  tls.set_verify_mode(asio::ssl::verify_peer);
  tls.set_verify_callback(asio::ssl::host_name_verification(address.host));
  ::SSL_set_tlsext_host_name(tls.native_handle(), address.host.c_str());
  failure =
      finish([&](Completion done) { tls.async_handshake(asio::ssl::stream_base::client, done); });
  if (!failure) return {};
  return error(StatusCode::kUnavailable, "the server is not trusted: {}", failure.message());
}

Status Exchange::send(http::verb verb, const char* target, const std::string& body) {
  http::request<http::string_body> request(verb, target, 11);
  const std::string& host = options_.address.host;
  request.set(http::field::host, host.find(':') == std::string::npos ? host : "[" + host + "]");
  request.set(http::field::content_type, "application/json");
  if (!options_.key.empty()) request.set(http::field::authorization, "Bearer " + options_.key);
  request.keep_alive(false);
  request.body() = body;
  request.prepare_payload();
  ErrorCode failure = finish([&](Completion done) { http::async_write(*stream_, request, done); });
  if (failure) return gone(failure);
  failure =
      finish([&](Completion done) { http::async_read_header(*stream_, buffer_, parser_, done); });
  return failure ? gone(failure) : Status();
}

Result<bool> Exchange::read(std::string& out) {
  if (stopped_ || parser_.is_done()) return false;
  const ErrorCode failure =
      finish([&](Completion done) { http::async_read_some(*stream_, buffer_, parser_, done); });
  if (failure) {
    KAKEYA_TRY(gone(failure));
    return false;
  }
  out += std::exchange(parser_.get().body(), {});
  if (out.size() > kMostHeldBytes) {
    return error(StatusCode::kUnavailable, "the server sends what is no answer");
  }
  return true;
}

// {"error": {"message"}}
std::string words_of(const Json& error) {
  if (!error.is_object() || !error.contains("error")) return "";
  const Json& inner = error["error"];
  const bool has_words =
      inner.is_object() && inner.contains("message") && inner["message"].is_string();
  return has_words ? inner["message"].get<std::string>() : "";
}

Unexpected refused(unsigned status, const std::string& body) {
  std::string words = words_of(Json::parse(body, nullptr, false));
  std::ranges::replace(words, '\n', ' ');
  return invalid_argument("the server answers with status {}: {}", status,
                          words.empty() ? "no reason" : words);
}

Result<std::string> rest_of(Exchange& exchange) {
  std::string body;
  for (bool more = true; more;) {
    KAKEYA_ASSIGN_OR_RETURN(more, exchange.read(body));
  }
  return body;
}

// Takes the events that are whole off `text`. Errors: what the server says in one.
Status take_events(std::string& text, const std::function<void(const Json&)>& on_chunk) {
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find("\n\n", begin)) != std::string::npos;) {
    const std::string_view event = std::string_view(text).substr(begin, end - begin);
    begin = end + 2;
    if (!event.starts_with("data: ")) continue;
    const Json chunk = Json::parse(event.substr(6), nullptr, false);
    if (const std::string words = words_of(chunk); !words.empty()) {
      return error(StatusCode::kUnavailable, "the server says: {}", words);
    }
    if (chunk.is_object()) on_chunk(chunk);
  }
  text.erase(0, begin);
  return {};
}

// A text somewhere below, or none.
std::string text_at(const Json& chunk, const char* pointer) {
  const Json::json_pointer at(pointer);
  if (!chunk.contains(at) || !chunk[at].is_string()) return "";
  return chunk[at].get<std::string>();
}

}  // namespace

Result<ServerAddress> parse_server_url(const std::string& url) {
  constexpr std::string_view kUnix = "unix:";
  ServerAddress address;
  if (url.starts_with(kUnix) && url.size() > kUnix.size()) {
    address.host = "localhost";
    address.socket_path = url.substr(kUnix.size());
    return address;
  }
  address.tls = url.starts_with("https://");
  const bool known = address.tls || url.starts_with("http://");
  std::string rest = known ? url.substr(address.tls ? 8 : 7) : "";
  for (const char* const end : {"/", "/v1"}) {
    if (rest.ends_with(end)) rest.resize(rest.size() - std::string_view(end).size());
  }
  const std::size_t host_end = rest.starts_with('[') ? rest.find(']') : rest.find(':');
  const std::size_t colon = host_end == std::string::npos ? host_end : rest.find(':', host_end);
  address.port = colon != std::string::npos ? rest.substr(colon + 1) : address.tls ? "443" : "80";
  address.host = rest.substr(0, colon);
  if (address.host.starts_with('[')) address.host = address.host.substr(1, address.host.size() - 2);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool sound = !address.host.empty() &&
                     address.host.find_first_of("/?#@[] ") == std::string::npos &&
                     !address.port.empty() && address.port.size() <= 5 &&
                     std::ranges::all_of(address.port, is_digit) &&
                     std::stoi(address.port) <= 65535;  // resolvers take it modulo 65,536
  if (sound) return address;
  return invalid_argument(
      "the server's address must be http://HOST[:PORT], https://HOST[:PORT] or unix:PATH but is "
      "'{}'",
      url);
}

Result<std::string> ChatClient::model() const {
  Exchange exchange(options_, stop_);
  KAKEYA_TRY(exchange.connect());
  KAKEYA_TRY(exchange.send(http::verb::get, "/v1/models", ""));
  KAKEYA_ASSIGN_OR_RETURN(const std::string body, rest_of(exchange));
  if (exchange.status() != 200) return refused(exchange.status(), body);
  std::string name = text_at(Json::parse(body, nullptr, false), "/data/0/id");
  if (name.empty()) return invalid_argument("the server lists no model");
  return name;
}

Result<ChatReply> ChatClient::ask(nlohmann::json body,
                                  const std::function<void(std::string_view)>& on_text) const {
  using Clock = std::chrono::steady_clock;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  Exchange exchange(options_, stop_);
  KAKEYA_TRY(exchange.connect());
  KAKEYA_TRY(exchange.send(http::verb::post, "/v1/chat/completions",
                           body.dump(-1, ' ', false, Json::error_handler_t::replace)));
  ChatReply reply;
  if (!exchange.stopped() && exchange.status() != 200) {
    KAKEYA_ASSIGN_OR_RETURN(const std::string words, rest_of(exchange));
    return refused(exchange.status(), words);
  }
  std::optional<Clock::time_point> first;
  Clock::time_point last;
  const auto on_chunk = [&](const Json& chunk) {
    const Json::json_pointer usage("/usage/completion_tokens");
    if (chunk.contains(usage) && chunk[usage].is_number_integer()) reply.tokens = chunk[usage];
    const std::string piece = text_at(chunk, "/choices/0/delta/content");
    if (piece.empty()) return;
    last = Clock::now();
    if (!first) first = last;
    reply.text += piece;
    on_text(piece);
  };
  std::string held;
  for (bool more = true; more;) {
    KAKEYA_ASSIGN_OR_RETURN(more, exchange.read(held));
    KAKEYA_TRY(take_events(held, on_chunk));
  }
  reply.stopped = exchange.stopped();
  if (first) reply.seconds = std::chrono::duration<double>(last - *first).count();
  return reply;
}

}  // namespace kakeya::client
