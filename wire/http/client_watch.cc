#include "wire/http/client_watch.h"

#include <poll.h>

#include <chrono>
#include <utility>

namespace kakeya::wire {
namespace {

#ifdef POLLRDHUP
constexpr short kPeerHasEnded = POLLRDHUP;
#else
constexpr short kPeerHasEnded = POLLHUP;  // BSD's kernels say so for either direction
#endif

// The time between looks whether a client that has sent more is still there.
constexpr std::chrono::milliseconds kLook{100};

}  // namespace

void ClientWatch::start() {
  waiting_ = true;
  half_closed_ = false;
  told_ = false;
  stream_.socket().async_wait(ClientStream::Socket::wait_read, [this](ErrorCode failure) {
    waiting_ = false;
    if (failure || stopping_) return;
    look();
    if (!gone_) look_again();  // bytes: of the next request, or of TLS
  });
}

void ClientWatch::look_again() {
  waiting_ = true;
  timer_.expires_after(kLook);
  timer_.async_wait([this](ErrorCode failure) {
    waiting_ = false;
    if (failure || stopping_) return;
    look();
    if (!gone_) look_again();
  });
}

void ClientWatch::look() {
  if (!stream_.socket().is_open()) {
    gone_ = true;
    return;
  }
  pollfd socket = {.fd = stream_.socket().native_handle(), .events = kPeerHasEnded, .revents = 0};
  if (::poll(&socket, 1, 0) <= 0) return;
  // A client that ends TLS ends both sides of it.
  const bool closed = (socket.revents & ~kPeerHasEnded) != 0 || stream_.tls() != nullptr;
  if (closed) gone_ = true;
  half_closed_ = true;
}

bool ClientWatch::take_half_closed() {
  return half_closed_ && !std::exchange(told_, true);
}

void ClientWatch::stop() {
  if (!waiting_) return;
  // A handler that is queued by now cannot be cancelled any more, and must not begin to wait anew.
  stopping_ = true;
  ErrorCode ignored;
  stream_.socket().cancel(ignored);
  timer_.cancel();
  while (waiting_) loop_.run_one();
  stopping_ = false;
}

}  // namespace kakeya::wire
