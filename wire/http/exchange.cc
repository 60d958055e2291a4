#include "wire/http/exchange.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <utility>

#include "base/random_id.h"
#include "service/trace_context.h"
#include "wire/http/http_status.h"
#include "wire/http/json_reader.h"
#include "wire/http/page.h"
#include "wire/http/request_text.h"

namespace kakeya::wire {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using ErrorCode = Loop::ErrorCode;

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// The log's name for a path: a client may write anything into one.
std::string_view known_path(std::string_view path, const Route* route) {
  if (find_page_file(path) != nullptr) return path;
  return route != nullptr ? route->path : "other";
}

// The value that a field of a header may have, of a text that has parts of a client's.
std::string header_text(std::string_view text) {
  constexpr std::size_t kMost = 1000;
  std::string field(text.substr(0, kMost));
  for (char& c : field) {
    if (c < ' ' || c > '~') c = '?';
  }
  return field;
}

// The page asks for the key that the rest takes, and browsers ask what they may without one.
bool needs_no_key(const HttpFields& fields, std::string_view path, const Route* route) {
  return (route != nullptr && route->is_open) || find_page_file(path) != nullptr ||
         fields.method() == http::verb::options;
}

// Writes buffers as one list, for which asio::async_write() is compiled once. False if that failed.
template <typename Buffers>
bool write_all(Loop& loop, ClientStream& stream, const Buffers& buffers) {
  const std::vector<asio::const_buffer> list(asio::buffer_sequence_begin(buffers),
                                             asio::buffer_sequence_end(buffers));
  return !loop.finish([&](Completion done) { asio::async_write(stream, list, done); });
}

}  // namespace

Exchange::Exchange(const Site& site,
                   Loop& loop,
                   ClientStream& stream,
                   const std::string& peer,
                   const bool& stopping)
    : site_(site),
      loop_(loop),
      stream_(stream),
      stopping_(stopping),
      watch_(loop, stream),
      ping_timer_(loop.context()),
      record_(std::make_shared<service::RequestRecord>(site.models.server().log(),
                                                       service::Client{.address = peer})),
      found_(site.routes.find({})) {}

Exchange::~Exchange() {
  // Answers that the driver has not ended yet hold the record a little longer.
  record_->gone = watch_.is_gone();
  record_->finish();
}

bool Exchange::admit(const HttpFields& fields, bool keep_alive) {
  version_ = fields.version();
  is_head_ = fields.method() == http::verb::head;
  path_ = path_of(view_of(fields.target()));
  found_ = site_.routes.find(path_, fields.method());
  const Route* const route = found_.route;
  const bool is_quiet = find_page_file(path_) != nullptr || (route != nullptr && route->is_quiet);
  record_->begin(known_path(path_, route));
  record_->client.address = client_address(site_.access, record_->client.address, fields);
  record_->id = random_id("request-");
  record_->trace_id = service::trace_id_of(view_of(fields["traceparent"]));
  record_->level = is_quiet ? service::LogLevel::kDebug : service::LogLevel::kInfo;
  const std::string_view origin = view_of(fields[http::field::origin]);
  if (site_.access.lets_read(origin)) origin_ = origin;
  if (const auto framed = check_framing(fields); !framed) return deny(framed.error());
  if (const auto known = check_host(site_.access, fields); !known) return deny(known.error());
  service::Client& client = record_->client;
  if (!needs_no_key(fields, path_, route)) {
    const auto known = check_key(site_.access, fields, client);
    if (!known) return deny(known.error());
    if (!client.key.empty()) server().counts().count_request(client.key);
  }
  const auto deadline = read_deadline(fields, server().request_timeout());
  if (!deadline) return deny(deadline.error());
  deadline_ = *deadline;
  keep_alive_ = keep_alive;
  return true;
}

bool Exchange::say_continue() {
  stream_.expires_after(site_.options.write_timeout);
  return write_all(loop_, stream_, asio::buffer(kContinue));
}

void Exchange::take(HttpRequest request) {
  request_ = std::move(request);
  record_->arrived = std::chrono::steady_clock::now();
}

bool Exchange::refuse_unreadable(ErrorCode failure) {
  keep_alive_ = false;
  is_head_ = false;
  if (failure == http::error::body_limit) {
    refuse_with(413, {.message = fmt::format("the body: expected at most {} bytes, got more",
                                             site_.options.most_body_bytes),
                      .code = "body_too_large"});
  } else if (failure == http::error::header_limit || failure == http::error::buffer_overflow) {
    refuse_with(431, {.message = fmt::format("the header: expected at most {} bytes, got more",
                                             site_.options.most_header_bytes)});
  } else if (failure.category() == http::make_error_code(http::error::bad_method).category() &&
             failure != http::error::end_of_stream && failure != http::error::partial_message) {
    refuse_with(400, {.message = "expected a request of HTTP/1.1, got something else"});
  }
  // Else the client has gone, or was too slow: nobody is there to be told.
  return false;
}

std::string Exchange::asked_model() const {
  for (auto& [name, value] : members_of(query_of(view_of(request_.target())))) {
    if (name == "model") return value;
  }
  if (!site_.models.has_choice() || body().empty()) return {};
  const auto body = parse_body(this->body());
  if (!body || !body->is_object()) return {};  // which its reader refuses
  const auto model = body->find("model");
  return model != body->end() && model->is_string() ? model->get<std::string>() : std::string();
}

bool Exchange::choose_model() {
  constexpr std::chrono::milliseconds kLook{10};
  bool is_late = false;
  bool is_watched = false;
  auto used = site_.models.use(asked_model(), [&] {
    if (!std::exchange(is_watched, true)) watch_.start();
    wait(kLook);
    is_late = deadline_ && std::chrono::steady_clock::now() > *deadline_;
    return !is_late && !watch_.is_gone() && !stopping_;
  });
  if (is_watched) watch_.stop();
  if (used) {
    model_ = std::move(*used);
    if (site_.models.has_choice()) record_->model = service().options().model_name;
    return true;
  }
  if (watch_.is_gone()) return false;
  if (is_late) used.error().status = StatusCode::kDeadlineExceeded;
  refuse(used.error());
  return false;
}

bool Exchange::reply_with(const service::Outcome<std::string>& json) {
  return json ? reply(200, *json) : refuse(json.error());
}

bool Exchange::refuse(const service::Refusal& refusal) {
  const unsigned status = http_status(refusal.status);
  Headers headers;
  if (status == 429 || status == 503) headers.emplace_back("Retry-After", "1");
  return refuse_with(status, refusal, headers);
}

bool Exchange::refuse_with(unsigned status,
                           const service::Refusal& refusal,
                           const Headers& headers) {
  return reply(status, found_.error_body(refusal), headers);
}

bool Exchange::deny(const Denial& denial) {
  Headers headers;
  if (denial.status == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
  if (denial.retry_after > 0) {
    headers.emplace_back("Retry-After", std::to_string(denial.retry_after));
  }
  refuse_with(denial.status, denial.refusal, headers);
  return false;
}

void Exchange::set_common_fields(http::response_header<>& response) const {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  response.set(http::field::server, "kakeya");
  response.set(http::field::date, fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(now)));
  response.set("x-request-id", record_->id);  // as the log has it
  response.set(http::field::connection, keeps_alive() ? "keep-alive" : "close");
  if (!origin_.empty()) {
    response.set(http::field::access_control_allow_origin, origin_);
    response.set(http::field::vary, "Origin");
  }
  if (!record_->not_enforced.empty()) {
    response.set("X-Kakeya-Not-Enforced", header_text(record_->not_enforced));
  }
  if (keeps_alive()) {
    response.set(http::field::keep_alive,
                 fmt::format("timeout={}", site_.options.header_timeout.count()));
  }
}

bool Exchange::reply(unsigned status,
                     std::string body,
                     const Headers& headers,
                     std::string_view content_type) {
  server().counts().count_response(status);
  record_->status = status;
  http::response<http::string_body> response(static_cast<http::status>(status), version_);
  set_common_fields(response);
  if (status != 204) {
    response.set(http::field::content_type,
                 boost::beast::string_view(content_type.data(), content_type.size()));
  }
  for (const auto& [name, value] : headers) response.set(name, value);
  response.body() = std::move(body);
  response.prepare_payload();
  if (is_head_) response.body().clear();  // its length is said all the same
  stream_.expires_after(site_.options.write_timeout);
  const ErrorCode failure =
      loop_.finish([&](Completion done) { http::async_write(stream_, response, done); });
  return !failure;
}

bool Exchange::begin_events(const StreamForm& form) {
  ping_ = form.ping;

  server().counts().count_response(200);
  record_->status = 200;
  http::response<http::empty_body> response(http::status::ok, version_);
  // Before HTTP/1.1 there are no chunks: the answer ends with the connection.
  if (version_ < 11) keep_alive_ = false;
  set_common_fields(response);
  response.set(http::field::content_type,
               boost::beast::string_view(form.content_type.data(), form.content_type.size()));
  response.set(http::field::cache_control, "no-cache");
  response.set("X-Accel-Buffering", "no");  // or nginx keeps events until it has 8 KiB of them
  if (version_ >= 11) response.chunked(true);
  http::response_serializer<http::empty_body> serializer(response);
  stream_.expires_after(site_.options.write_timeout);
  const ErrorCode failure =
      loop_.finish([&](Completion done) { http::async_write_header(stream_, serializer, done); });
  streaming_ = true;
  return !failure;
}

bool Exchange::write(std::string_view events) {
  const asio::const_buffer bytes(events.data(), events.size());
  stream_.expires_after(site_.options.write_timeout);
  const bool is_written = version_ >= 11 ? write_all(loop_, stream_, http::make_chunk(bytes))
                                         : write_all(loop_, stream_, bytes);
  return is_written && !watch_.is_gone();
}

bool Exchange::end_events() {
  if (version_ < 11) return true;
  return write_all(loop_, stream_, http::make_chunk_last());
}

std::function<void()> Exchange::wake() {
  return [loop = &loop_] { loop->wake(); };
}

bool Exchange::wait(std::optional<std::chrono::milliseconds> limit) {
  bool late = false;
  bool timed = limit.has_value();
  if (timed) {
    ping_timer_.expires_after(*limit);
    ping_timer_.async_wait([&](ErrorCode failure) {
      timed = false;
      late = !failure;
    });
  }
  while (!loop_.has_news() && !watch_.is_gone() && !late) {
    loop_.run_one();
    if (watch_.take_half_closed() && !watch_.is_gone()) probe();
  }
  ping_timer_.cancel();
  while (timed) loop_.run_one();
  return !watch_.is_gone() && loop_.take_news();
}

bool Exchange::wait_with_pings() {
  for (;;) {
    const bool waited = wait(site_.options.ping_interval);
    if (waited || watch_.is_gone()) return waited;
    if (!ping_.empty() && !write(ping_)) return false;
  }
}

void Exchange::probe() {
  if (streaming_) {
    if (!ping_.empty() && !write(ping_)) watch_.note_gone();
  } else if (version_ >= 11) {
    if (!say_continue()) watch_.note_gone();
  }
}

}  // namespace kakeya::wire
