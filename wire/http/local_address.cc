#include "wire/http/local_address.h"

#include <boost/asio/ip/address.hpp>
#include <boost/beast/core/string.hpp>

#include "base/status.h"

namespace kakeya::wire {

Result<std::string> listen_address(const std::string& host) {
  if (host == "localhost") return "127.0.0.1";
  boost::system::error_code failure;
  const auto address = boost::asio::ip::make_address(host, failure);
  if (!failure) return address.to_string();
  return invalid_argument(
      "HttpOptions::host must be an address of this machine, as 127.0.0.1 or ::1, or localhost, "
      "but is '{}'",
      host);
}

std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.find(':'));
}

bool is_local_host(std::string_view host) {
  if (host.empty()) return true;
  // An address of its own has more than the one colon of a port.
  const bool bare = host.find(':') != host.rfind(':') && host.front() != '[';
  const std::string name(bare ? host : without_port(host));
  if (boost::beast::iequals(name, "localhost")) return true;
  boost::system::error_code failure;
  const auto address = boost::asio::ip::make_address(name, failure);
  return !failure && address.is_loopback();
}

}  // namespace kakeya::wire
