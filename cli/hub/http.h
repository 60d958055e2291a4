// Requests over HTTP, with libcurl. Certificates are always verified; no protocol but http and
// https is spoken, and nothing that begun with https goes on without it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace kakeya::cli {

// True in builds with libcurl.
bool has_http();

struct HttpAnswer {
  long status = 0;                             // 0: there was none
  std::map<std::string, std::string> headers;  // of the last answer, names in small letters
  std::string problem;                         // why there is no whole answer; empty: there is one
  bool may_pass = false;                       // the problem may be gone the next time
};

struct HttpRequest {
  std::string url;
  std::string token;       // for this host alone: no redirect takes it to another one
  std::uint64_t from = 0;  // the first byte that is asked for
  // Takes bytes of an answer with status 2xx; false ends the request.
  std::function<bool(const HttpAnswer& so_far, std::string_view bytes)> take;
  // True ends the request.
  std::function<bool()> stopped;
};

class HttpClient {
 public:
  HttpClient();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Follows a bounded number of redirects. Connections are kept for the next request.
  HttpAnswer get(const HttpRequest& request);

 private:
  struct Connection;
  std::unique_ptr<Connection> connection_;
};

}  // namespace kakeya::cli
