#include <curl/curl.h>

#include <algorithm>

#include "cli/hub/http.h"
#include "kakeya/version.h"

namespace kakeya::cli {
namespace {

constexpr long kMostRedirects = 10;
constexpr long kConnectSeconds = 30;
constexpr long kStalledSeconds = 60;  // without a byte
constexpr std::size_t kMostHeaderBytes = 64 << 10;

// A request as libcurl's callbacks see it.
struct RunningRequest {
  const HttpRequest& request;
  CURL* curl;
  HttpAnswer answer = {};
  std::size_t header_bytes = 0;
};

std::size_t on_header(char* bytes, std::size_t /*one*/, std::size_t count, void* context) {
  auto& running = *static_cast<RunningRequest*>(context);
  std::string_view line(bytes, count);
  running.header_bytes += count;
  if (running.header_bytes > kMostHeaderBytes) return 0;
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
  if (line.starts_with("HTTP/")) running.answer.headers.clear();  // of a redirect
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return count;
  std::string name(line.substr(0, colon));
  std::ranges::transform(name, name.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const std::size_t value = line.find_first_not_of(' ', colon + 1);
  running.answer.headers[name] =
      value == std::string_view::npos ? "" : std::string(line.substr(value));
  return count;
}

std::size_t on_body(char* bytes, std::size_t /*one*/, std::size_t count, void* context) {
  auto& running = *static_cast<RunningRequest*>(context);
  ::curl_easy_getinfo(running.curl, CURLINFO_RESPONSE_CODE, &running.answer.status);
  if (running.answer.status / 100 != 2) return count;  // pages for people
  return running.request.take(running.answer, {bytes, count}) ? count : 0;
}

int on_progress(void* context, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& running = *static_cast<RunningRequest*>(context);
  return running.request.stopped() ? 1 : 0;
}

// Problems of this machine, of the request, or of what takes the bytes: the next time has them,
// too.
bool stays(CURLcode code) {
  switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_WRITE_ERROR:
    case CURLE_ABORTED_BY_CALLBACK:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_OUT_OF_MEMORY:
      return true;
    default:
      return false;
  }
}

}  // namespace

struct HttpClient::Connection {
  CURL* curl = ::curl_easy_init();
  ~Connection() { ::curl_easy_cleanup(curl); }
};

bool has_http() {
  return true;
}

HttpClient::HttpClient() {
  ::curl_global_init(CURL_GLOBAL_DEFAULT);
  connection_ = std::make_unique<Connection>();
}
HttpClient::~HttpClient() = default;

HttpAnswer HttpClient::get(const HttpRequest& request) {
  CURL* const curl = connection_->curl;
  if (curl == nullptr) return {.headers = {}, .problem = "libcurl does not start"};
  ::curl_easy_reset(curl);
  RunningRequest running = {.request = request, .curl = curl};
  char problem[CURL_ERROR_SIZE] = "";
  const bool secure = request.url.starts_with("https:");
  curl_slist* headers = nullptr;
  if (!request.token.empty()) {
    headers = ::curl_slist_append(headers, ("Authorization: Bearer " + request.token).c_str());
  }
  ::curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  ::curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  ::curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  ::curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
  ::curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  ::curl_easy_setopt(curl, CURLOPT_MAXREDIRS, kMostRedirects);
  ::curl_easy_setopt(curl, CURLOPT_USERAGENT, (std::string("kakeya/") + kVersion).c_str());
  ::curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  ::curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  ::curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, kStalledSeconds);
  ::curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  ::curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 256L << 10);
  ::curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, problem);
  ::curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
  ::curl_easy_setopt(curl, CURLOPT_HEADERDATA, &running);
  ::curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  ::curl_easy_setopt(curl, CURLOPT_WRITEDATA, &running);
  ::curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  ::curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
  ::curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &running);
  const std::string range = std::to_string(request.from) + "-";
  if (request.from > 0) ::curl_easy_setopt(curl, CURLOPT_RANGE, range.c_str());
  const CURLcode code = ::curl_easy_perform(curl);
  ::curl_slist_free_all(headers);
  ::curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &running.answer.status);
  if (code != CURLE_OK) {
    running.answer.problem = problem[0] == '\0' ? ::curl_easy_strerror(code) : problem;
    running.answer.may_pass = !stays(code);
  }
  return running.answer;
}

}  // namespace kakeya::cli
