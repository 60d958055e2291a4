// One client's connection: reads requests, answers them, one after the other, on a thread of its
// own. Everything that may wait does so in the connection's own loop, so that news, a client that
// goes away and a server that stops are seen at once.
#pragma once

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "wire/http/client_stream.h"
#include "wire/http/exchange.h"
#include "wire/http/loop.h"

namespace kakeya::wire {

class Connection {
 public:
  explicit Connection(const Site& site);

  // The loop of the connection's socket.
  boost::asio::io_context& context() { return loop_.context(); }

  // Serves the client until one of both has enough, or only tells who is `turned_away` that there
  // are too many. Throws nothing. On the connection's thread.
  void run(ClientStream::Socket socket, bool turned_away);

  // Closes the connection, at once if it waits for a request, else when the answer is over or has
  // not been taken for two seconds. From any thread.
  void stop();

  // Since when it has waited for a handshake or a request, in ticks of the steady clock; kBusy
  // while there is one, and after make_room(). From any thread.
  std::int64_t idle_since() const { return idle_since_; }
  static constexpr std::int64_t kBusy = std::numeric_limits<std::int64_t>::max();

  // Idle from here on. Before run(), or on its thread.
  void begin_idle();

  // Closes the connection if it is idle by then; until that is known, it is leaving. From any
  // thread.
  void make_room();
  bool is_leaving() const { return leaving_; }

 private:
  using ErrorCode = Loop::ErrorCode;
  using HttpParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  void end_idle();
  // The next ones return whether the connection goes on.
  bool shake_hands();
  bool serve_one();
  bool read_and_answer(Exchange& exchange);
  // Reads the rest of a request, of which at most so many bytes are its body.
  ErrorCode read_body(HttpParser& parser, std::size_t most_bytes);
  // Lets the client read what was written before the connection is closed.
  void close_gently();

  const Site& site_;
  Loop loop_;
  boost::asio::steady_timer stop_timer_{loop_.context()};
  std::unique_ptr<ClientStream> stream_;
  boost::beast::flat_buffer buffer_;  // what was read and not yet looked at; of a bounded size
  std::string peer_;                  // who is connected
  bool idle_ = true;                  // as idle_since_, on its own thread
  bool answering_ = false;
  bool stopping_ = false;
  std::atomic<std::int64_t> idle_since_ = 0;
  std::atomic<bool> leaving_ = false;
};

}  // namespace kakeya::wire
