// The part of a connection that writes responses, whole and in pieces.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <utility>

#include "wire/http/connection.h"

namespace kakeya::server {

namespace asio = boost::asio;
namespace http = boost::beast::http;

bool Connection::reply_with(const Outcome<std::string>& json) {
  return json ? reply(200, *json) : refuse(json.error());
}

bool Connection::refuse(const Refusal& refusal) {
  const unsigned status = http_error(refusal.status).status;
  Headers headers;
  if (status == 429 || status == 503) headers.emplace_back("Retry-After", "1");
  return reply(status, error_json(refusal), headers);
}

bool Connection::deny(const Denial& denial) {
  Headers headers;
  if (denial.status == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
  if (denial.retry_after > 0) {
    headers.emplace_back("Retry-After", std::to_string(denial.retry_after));
  }
  return reply(denial.status, error_json(denial.refusal), headers);
}

// A request that is none, too large or too slow.
bool Connection::refuse_unreadable(ErrorCode failure) {
  keep_alive_ = false;
  is_head_ = false;
  if (failure == http::error::body_limit) {
    return reply(413, error_json({.message = fmt::format("the body: expected at most {} bytes, "
                                                         "got more",
                                                         service_.options.most_body_bytes),
                                  .code = "body_too_large"}));
  }
  if (failure == http::error::header_limit || failure == http::error::buffer_overflow) {
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

void Connection::set_common_fields(boost::beast::http::response_header<>& response) const {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  response.set(http::field::server, "kakeya");
  response.set(http::field::date, fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(now)));
  const bool kept = keep_alive_ && !stopping_;
  response.set(http::field::connection, kept ? "keep-alive" : "close");
  if (!origin_.empty()) {
    response.set(http::field::access_control_allow_origin, origin_);
    response.set(http::field::vary, "Origin");
  }
  if (kept) {
    response.set(http::field::keep_alive,
                 fmt::format("timeout={}", service_.options.header_timeout.count()));
  }
}

bool Connection::reply(unsigned status,
                       std::string body,
                       const Headers& headers,
                       std::string_view content_type) {
  service_.metrics.count_response(status);
  record_->status = status;
  http::response<http::string_body> response(static_cast<http::status>(status), version_);
  set_common_fields(response);
  if (status != 204) {
    response.set(http::field::content_type,
                 boost::beast::string_view(content_type.data(), content_type.size()));
  }
  for (const auto& [name, value] : headers) response.set(name, value);
  response.body() = std::move(body);
  response.prepare_payload();
  if (is_head_) response.body().clear();  // its length is said all the same
  stream_->expires_after(service_.options.write_timeout);
  const ErrorCode failure =
      finish([&](auto handler) { http::async_write(*stream_, response, std::move(handler)); });
  return !failure;
}

bool Connection::write_stream_header() {
  service_.metrics.count_response(200);
  record_->status = 200;
  http::response<http::empty_body> response(http::status::ok, version_);
  // Before HTTP/1.1 there are no chunks: the answer ends with the connection.
  if (version_ < 11) keep_alive_ = false;
  set_common_fields(response);
  response.set(http::field::content_type, "text/event-stream");
  response.set(http::field::cache_control, "no-cache");
  response.set("X-Accel-Buffering", "no");  // or nginx keeps events until it has 8 KiB of them
  if (version_ >= 11) response.chunked(true);
  http::response_serializer<http::empty_body> serializer(response);
  stream_->expires_after(service_.options.write_timeout);
  const ErrorCode failure = finish(
      [&](auto handler) { http::async_write_header(*stream_, serializer, std::move(handler)); });
  streaming_ = true;
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

}  // namespace kakeya::server
