#include "wire/http/client_stream.h"

namespace kakeya::wire {

void ClientStream::read_some(std::vector<boost::asio::mutable_buffer> into, Done done) {
  if (tls_) {
    tls_->async_read_some(into, std::move(done));
  } else {
    plain_.async_read_some(into, std::move(done));
  }
}

void ClientStream::write_some(std::vector<boost::asio::const_buffer> from, Done done) {
  if (tls_) {
    tls_->async_write_some(from, std::move(done));
  } else {
    plain_.async_write_some(from, std::move(done));
  }
}

}  // namespace kakeya::wire
