// The options of a server.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kakeya/scheduler.h"

namespace kakeya::server {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarn };

struct ServeOptions {
  std::string host = "127.0.0.1";  // others than the loopback's take keys and TLS
  std::uint16_t port = 8080;       // 0: one that is free
  std::string socket_path = {};    // of a Unix socket, instead of host and port; empty: none
  // Paths of PEM files, the certificate with its chain; both or none.
  std::string tls_certificate = {};
  std::string tls_key = {};
  std::string keys_file = {};            // Keys::load(); empty: everybody may ask
  std::string log_file = {};             // ServerLog::open(); empty: none, "-": standard output
  LogLevel log_level = LogLevel::kInfo;  // lines below are left out
  std::string model_name = {};           // what requests call the model
  std::int64_t draft_length = -1;        // of every request: kAutoDraftLength
  SchedulerOptions scheduler = {};
  std::vector<std::string> allowed_hosts = {};    // names in Host beside the server's own
  std::vector<std::string> allowed_origins = {};  // of pages that may read answers; "*": any
  // The most time of a request, from its header on; it may ask for less. 0: any.
  std::chrono::duration<double> request_timeout{0.0};
  std::chrono::milliseconds ping_interval{15000};  // between signs of life of a stream that waits
  std::chrono::milliseconds watchdog{30000};       // most of a pass, else /health says so; 0: any

  // A newcomer takes the place of the connection that has been idle longest, and is told to come
  // back if none is.
  std::size_t most_connections = 256;
  std::size_t most_body_bytes = std::size_t{8} << 20;
  std::uint32_t most_header_bytes = 16 << 10;
  // Tokens that a client may leave unread beside what the system's buffers hold.
  std::size_t most_unread_tokens = 1024;
  std::chrono::seconds handshake_timeout{10};  // of TLS
  std::chrono::seconds header_timeout{60};     // also how long a connection may be idle
  std::chrono::seconds body_timeout{60};
  std::chrono::seconds write_timeout{30};  // of a piece of an answer
};

}  // namespace kakeya::server
