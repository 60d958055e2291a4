#include "server/local_address.h"

#include <boost/asio/ip/address.hpp>

#include "base/status.h"

namespace kakeya::server {

Result<std::string> local_address(const std::string& host) {
  if (host == "localhost") return "127.0.0.1";
  boost::system::error_code failure;
  const auto address = boost::asio::ip::make_address(host, failure);
  if (!failure && address.is_loopback()) return address.to_string();
  return invalid_argument(
      "the host must be 127.0.0.1, ::1 or localhost but is '{}': there are no keys yet, so other "
      "machines are not served",
      host);
}

bool is_local_host(std::string_view host) {
  if (host.empty()) return true;
  if (host.front() == '[') {
    host = host.substr(1, host.find(']') - 1);
  } else {
    host = host.substr(0, host.find(':'));
  }
  return local_address(std::string(host)).has_value();
}

}  // namespace kakeya::server
