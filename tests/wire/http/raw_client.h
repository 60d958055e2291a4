// A client of bytes alone, for tests of what a server does with those that are no requests.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace kakeya::test {

class RawClient {
 public:
  // Throws std::runtime_error if there is no connection to be had.
  explicit RawClient(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const auto* const to = reinterpret_cast<const sockaddr*>(&address);
    if (socket_ < 0 || ::connect(socket_, to, sizeof(address)) != 0) {
      if (socket_ >= 0) ::close(socket_);
      throw std::runtime_error("no connection");
    }
    const timeval patience = {.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  RawClient(RawClient&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  RawClient& operator=(RawClient&&) = delete;
  ~RawClient() {
    if (socket_ >= 0) ::close(socket_);
  }

  // False if the server takes no more.
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  void end_sending() const { ::shutdown(socket_, SHUT_WR); }

  // Reads what comes until the server has ended the connection. Throws std::runtime_error if it
  // does not do so within 20 seconds, or sends more than `most`.
  std::string read_to_end(std::size_t most = 1 << 20) const {
    std::string all;
    std::vector<char> block(1 << 16);
    for (;;) {
      const ssize_t got = ::recv(socket_, block.data(), block.size(), 0);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return all;
      if (got < 0) throw std::runtime_error("the connection does not end, after: " + all);
      all.append(block.data(), static_cast<std::size_t>(got));
      if (all.size() > most) throw std::runtime_error("answers without end: " + all.substr(0, 300));
    }
  }

  // Reads what comes up to and with `end`. Throws as read_to_end(), and if the connection ends
  // before.
  std::string read_until(std::string_view end) const {
    std::string all;
    char byte = 0;
    while (!all.ends_with(end)) {
      if (::recv(socket_, &byte, 1, 0) != 1) throw std::runtime_error("expected more than " + all);
      all += byte;
    }
    return all;
  }

 private:
  int socket_;
};

// Sends bytes and reads all that comes of them, until the server ends the connection. The sending
// does not wait for the reading.
inline std::string all_answers(std::uint16_t port, std::string_view bytes) {
  const RawClient client(port);
  std::thread sender([&] { client.send(bytes); });
  std::string answers;
  try {
    answers = client.read_to_end();
  } catch (const std::runtime_error& failure) {
    answers = failure.what();
  }
  client.end_sending();
  sender.join();
  return answers;
}

// The status lines of responses, one behind the other. Bodies have none.
inline std::vector<std::string> status_lines(std::string_view responses) {
  std::vector<std::string> lines;
  constexpr std::string_view kBegin = "HTTP/1.";
  for (std::size_t at = responses.find(kBegin); at != std::string_view::npos;
       at = responses.find(kBegin, at + 1)) {
    // In an answer's text it may be quoted, as "expected a request of HTTP/1.1".
    if (at > 0 && responses[at - 1] == ' ') continue;
    lines.emplace_back(responses.substr(at, responses.find('\r', at) - at));
  }
  return lines;
}

}  // namespace kakeya::test
