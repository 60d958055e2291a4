// The bytes of one client: a socket of TCP or a Unix one, with TLS around it or without, as one
// stream of Boost.Asio. Time limits are those of the socket below.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

  // As Boost.Asio asks of a stream. Whatever the handler and the buffers, the socket's own
  // operations and those of TLS are compiled for Done and for lists of buffers alone, in
  // client_stream.cc.
  template <typename Buffers, typename Handler>
  auto async_read_some(const Buffers& buffers, Handler&& handler) {
    return boost::asio::async_initiate<Handler, void(ErrorCode, std::size_t)>(
        [this](auto own, const Buffers& into) {
          read_some(list_of<boost::asio::mutable_buffer>(into), done_of(std::move(own)));
        },
        handler, buffers);
  }

  template <typename Buffers, typename Handler>
  auto async_write_some(const Buffers& buffers, Handler&& handler) {
    return boost::asio::async_initiate<Handler, void(ErrorCode, std::size_t)>(
        [this](auto own, const Buffers& from) {
          write_some(list_of<boost::asio::const_buffer>(from), done_of(std::move(own)));
        },
        handler, buffers);
  }

 private:
  using Done = std::function<void(ErrorCode, std::size_t)>;

  template <typename Buffer, typename Buffers>
  static std::vector<Buffer> list_of(const Buffers& buffers) {
    return {boost::asio::buffer_sequence_begin(buffers), boost::asio::buffer_sequence_end(buffers)};
  }
  // Handlers may be moved alone; a std::function wants to copy what it holds.
  template <typename Handler>
  static Done done_of(Handler handler) {
    return [own = std::make_shared<Handler>(std::move(handler))](
               ErrorCode failure, std::size_t bytes) { (*own)(failure, bytes); };
  }

  void read_some(std::vector<boost::asio::mutable_buffer> into, Done done);
  void write_some(std::vector<boost::asio::const_buffer> from, Done done);

  Plain plain_;
  std::optional<Tls> tls_;
};

}  // namespace kakeya::wire
