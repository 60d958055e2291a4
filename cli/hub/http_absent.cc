// Stands in for HTTP in builds without libcurl.
#include "cli/hub/http.h"

namespace kakeya::cli {

struct HttpClient::Connection {};

bool has_http() {
  return false;
}

HttpClient::HttpClient() = default;
HttpClient::~HttpClient() = default;

HttpAnswer HttpClient::get(const HttpRequest& /*request*/) {
  return {.headers = {}, .problem = "this build has no libcurl"};
}

}  // namespace kakeya::cli
