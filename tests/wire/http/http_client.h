// A client over the loopback, for tests of the server.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace kakeya::test {

namespace http = boost::beast::http;
using HttpResponse = http::response<http::string_body>;

class HttpClient {
 public:
  explicit HttpClient(std::uint16_t port) : socket_(io_) {
    socket_.connect({boost::asio::ip::address_v4::loopback(), port});
  }

  void send(const HttpResponse::fields_type& fields,
            http::verb verb,
            const std::string& target,
            const std::string& body = "") {
    http::request<http::string_body> request(verb, target, 11);
    request.set(http::field::host, "localhost");
    request.set(http::field::content_type, "application/json");
    for (const auto& field : fields) request.set(field.name_string(), field.value());
    request.body() = body;
    request.prepare_payload();
    http::write(socket_, request);
  }

  void send_bytes(const std::string& bytes) {
    boost::asio::write(socket_, boost::asio::buffer(bytes));
  }

  HttpResponse receive() {
    HttpResponse response;
    http::read(socket_, buffer_, response);
    return response;
  }

  HttpResponse get(const std::string& target) {
    send({}, http::verb::get, target);
    return receive();
  }

  HttpResponse post(const nlohmann::json& body) {
    send({}, http::verb::post, "/v1/chat/completions", body.dump());
    return receive();
  }

  // At least one byte of an answer is there.
  void wait_for_bytes() { socket_.wait(boost::asio::ip::tcp::socket::wait_read); }

 private:
  boost::asio::io_context io_;
  boost::asio::ip::tcp::socket socket_;
  boost::beast::flat_buffer buffer_;
};

// The texts of a stream of events, each "data: TEXT" and an empty line and nothing else. Throws
// std::runtime_error if it is none.
inline std::vector<std::string> event_texts(const std::string& stream) {
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t end = stream.find("\n\n", at);
    if (stream.compare(at, 6, "data: ") != 0 || end == std::string::npos) {
      throw std::runtime_error("no event: " + stream.substr(at));
    }
    texts.push_back(stream.substr(at + 6, end - at - 6));
    if (texts.back().find('\n') != std::string::npos) throw std::runtime_error(texts.back());
    at = end + 2;
  }
  return texts;
}

}  // namespace kakeya::test
