// The options of a server of gRPC.
#pragma once

#include <string>

namespace kakeya::wire {

struct GrpcOptions {
  std::string address = {};  // HOST:PORT; port 0: one that is free
  // As those of HttpOptions: paths of PEM files, both or none, and of the keys that clients need.
  std::string tls_certificate = {};
  std::string tls_key = {};
  std::string keys_file = {};
};

}  // namespace kakeya::wire
