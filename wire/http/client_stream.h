// The bytes of one client: a socket of TCP or a Unix one, with TLS around it or without, as one
// stream of Boost.Asio. Time limits are those of the socket below.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

namespace kakeya::wire {

// The address of the other end, "unix" of a Unix socket, "unknown" of one that has gone.
inline std::string peer_of(const boost::asio::generic::stream_protocol::socket& socket) {
  boost::system::error_code failure;
  const auto end = socket.remote_endpoint(failure);
  if (failure) return "unknown";
  if (end.protocol().family() == AF_UNIX) return "unix";
  boost::asio::ip::tcp::endpoint peer;
  if (end.size() > peer.capacity()) return "unknown";
  std::memcpy(peer.data(), end.data(), end.size());
  return peer.address().to_string();
}

// One thread at a time.
class ClientStream {
 public:
  using ErrorCode = boost::system::error_code;
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Plain = boost::beast::basic_stream<boost::asio::generic::stream_protocol>;
  using Tls = boost::asio::ssl::stream<Plain&>;
  using executor_type = Plain::executor_type;

  // Takes a socket; with `tls`, which must outlive the stream, a handshake comes first.
  ClientStream(Socket socket, boost::asio::ssl::context* tls) : plain_(std::move(socket)) {
    if (tls != nullptr) tls_.emplace(plain_, *tls);
  }
  ClientStream(const ClientStream&) = delete;
  ClientStream& operator=(const ClientStream&) = delete;

  executor_type get_executor() { return plain_.get_executor(); }
  Socket& socket() { return plain_.socket(); }
  Plain& plain() { return plain_; }
  // Null without TLS.
  Tls* tls() { return tls_ ? &*tls_ : nullptr; }

  // Sets one time limit for all operations that begin from here on, together.
  template <typename Duration>
  void expires_after(Duration limit) {
    plain_.expires_after(limit);
  }

  template <typename Buffers, typename Handler>
  auto async_read_some(const Buffers& buffers, Handler&& handler) {
    return boost::asio::async_initiate<Handler, void(ErrorCode, std::size_t)>(
        [this](auto own, const Buffers& into) {
          if (tls_) {
            tls_->async_read_some(into, std::move(own));
          } else {
            plain_.async_read_some(into, std::move(own));
          }
        },
        handler, buffers);
  }

  template <typename Buffers, typename Handler>
  auto async_write_some(const Buffers& buffers, Handler&& handler) {
    return boost::asio::async_initiate<Handler, void(ErrorCode, std::size_t)>(
        [this](auto own, const Buffers& from) {
          if (tls_) {
            tls_->async_write_some(from, std::move(own));
          } else {
            plain_.async_write_some(from, std::move(own));
          }
        },
        handler, buffers);
  }

 private:
  Plain plain_;
  std::optional<Tls> tls_;
};

}  // namespace kakeya::wire
