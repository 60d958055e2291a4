// Looks for a client that goes away while it waits for an answer.
#pragma once

#include <boost/asio/steady_timer.hpp>

#include "wire/http/client_stream.h"
#include "wire/http/loop.h"

namespace kakeya::wire {

// On the thread of the loop. Both must outlive it.
class ClientWatch {
 public:
  ClientWatch(Loop& loop, ClientStream& stream)
      : loop_(loop), stream_(stream), timer_(loop.context()) {}
  ~ClientWatch() { stop(); }
  ClientWatch(const ClientWatch&) = delete;
  ClientWatch& operator=(const ClientWatch&) = delete;

  void start();
  void stop();

  // True if the client has closed the connection, as far as was seen by now.
  bool is_gone() const { return gone_; }
  // The caller saw it go.
  void note_gone() { gone_ = true; }
  // True if the client sends nothing more: it may be gone, or wait for its answer. Only the next
  // call after that is seen returns it.
  bool take_half_closed();

 private:
  using ErrorCode = Loop::ErrorCode;

  void look_again();
  // Looks whether the client is there, and whether it has ended its side of the connection.
  void look();

  Loop& loop_;
  ClientStream& stream_;
  boost::asio::steady_timer timer_;
  bool waiting_ = false;   // a handler will look for the client
  bool stopping_ = false;  // it is to be the last one
  bool half_closed_ = false;
  bool told_ = false;  // by take_half_closed()
  bool gone_ = false;
};

}  // namespace kakeya::wire
