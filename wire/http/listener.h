// Where a server listens: a port, or a Unix socket, whose file is there as long as the listener.
#pragma once

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <string>

#include "kakeya/status.h"
#include "wire/http/http_options.h"

namespace kakeya::wire {

// One thread at a time.
class Listener {
 public:
  using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;

  explicit Listener(boost::asio::io_context& io) : acceptor_(io) {}
  // Removes the socket's file, if it is still the one that was made.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Errors: kUnavailable if the port or the path is taken, kInvalidArgument for a path that is too
  // long or of something else than a socket.
  Status listen(const HttpOptions& options);

  Acceptor& acceptor() { return acceptor_; }
  std::uint16_t port() const { return port_; }  // 0 of a Unix socket
  // "127.0.0.1:8080", "[::1]:8080", or the socket's path
  const std::string& place() const { return place_; }

 private:
  Status listen_on_port(const HttpOptions& options);
  Status listen_on_path(const std::string& path);

  Acceptor acceptor_;
  std::uint16_t port_ = 0;
  std::string place_;
  std::string path_;  // of the file that was made
  std::uint64_t device_ = 0;
  std::uint64_t inode_ = 0;
};

}  // namespace kakeya::wire
