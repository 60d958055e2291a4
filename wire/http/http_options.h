// The options of a server of HTTP.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kakeya::wire {

struct HttpOptions {
  std::string host = "127.0.0.1";  // others than the loopback's take keys and TLS
  std::uint16_t port = 8080;       // 0: one that is free
  std::string socket_path = {};    // of a Unix socket, instead of host and port; empty: none
  // Paths of PEM files, the certificate with its chain; both or none.
  std::string tls_certificate = {};
  std::string tls_key = {};
  std::string keys_file = {};                      // Keys::load(); empty: everybody may ask
  std::vector<std::string> allowed_hosts = {};     // names in Host beside the server's own
  std::vector<std::string> allowed_origins = {};   // of pages that may read answers; "*": any
  std::vector<std::string> trusted_proxies = {};   // TrustedProxies::parse()
  std::chrono::milliseconds ping_interval{15000};  // between signs of life of a stream that waits

  // A newcomer takes the place of the connection that has been idle longest, and is told to come
  // back if none is.
  std::size_t most_connections = 256;
  std::size_t most_body_bytes = std::size_t{8} << 20;
  std::uint32_t most_header_bytes = 16 << 10;
  std::chrono::seconds handshake_timeout{10};  // of TLS
  std::chrono::seconds header_timeout{60};     // also how long a connection may be idle
  std::chrono::seconds body_timeout{60};
  std::chrono::seconds write_timeout{30};  // of a piece of an answer
};

}  // namespace kakeya::wire
