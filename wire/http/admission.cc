#include "wire/http/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/http/verb.hpp>
#include <charconv>

#include "wire/http/request_text.h"

namespace kakeya::wire {
namespace {

namespace http = boost::beast::http;
using Seconds = std::chrono::duration<double>;

constexpr double kMostSeconds = 1e6;

std::optional<Seconds> read_seconds(std::string_view text) {
  double seconds = 0.0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool sound = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() &&
                     seconds > 0.0 && seconds <= kMostSeconds;
  return sound ? std::optional<Seconds>(seconds) : std::nullopt;
}

// All fields of a name, in order, as one that has them all (RFC 9110).
std::string joined(const HttpFields& fields, boost::beast::string_view name) {
  std::string all;
  const auto [begin, end] = fields.equal_range(name);
  for (auto field = begin; field != end; ++field) {
    if (field != begin) all += ',';
    all += view_of(field->value());
  }
  return all;
}

}  // namespace

tl::expected<void, Denial> check_framing(const HttpFields& fields) {
  const std::size_t encodings = fields.count(http::field::transfer_encoding);
  if (encodings == 0) return {};
  const std::string_view encoding = view_of(fields[http::field::transfer_encoding]);
  const bool is_chunked =
      encodings == 1 && boost::beast::iequals(fields[http::field::transfer_encoding], "chunked");
  if (is_chunked && fields.version() == 11) return {};
  return tl::unexpected(Denial{
      .status = 501,
      .refusal = {.message = fmt::format(
                      "Transfer-Encoding: expected chunked or none in HTTP/1.{}, got {}",
                      fields.version() % 10, encodings > 1 ? "several" : quoted(encoding))}});
}

tl::expected<void, Denial> check_host(const Access& access, const HttpFields& fields) {
  const std::size_t hosts = fields.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && fields.version() == 11)) {
    return tl::unexpected(
        Denial{.status = 400,
               .refusal = {.message = fmt::format("Host: expected one, got {}",
                                                  hosts == 0 ? "none" : "several")}});
  }
  const std::string_view host = view_of(fields[http::field::host]);
  if (access.knows_host(host)) return {};
  return tl::unexpected(
      Denial{.status = 403,
             .refusal = {.message = fmt::format("Host: expected localhost or a name of this "
                                                "server, got {}",
                                                quoted(host)),
                         .code = "host_not_allowed"}});
}

std::string client_address(const Access& access,
                           const std::string& peer,
                           const HttpFields& fields) {
  return access.proxies().client_of(peer, joined(fields, "Forwarded"),
                                    joined(fields, "X-Forwarded-For"));
}

tl::expected<void, Denial> check_key(Access& access,
                                     const HttpFields& fields,
                                     service::Client& client) {
  const Credentials given = {.authorization = view_of(fields[http::field::authorization]),
                             .x_api_key = view_of(fields["x-api-key"]),
                             .api_key = view_of(fields["api-key"])};
  return access.admit(given, fields.method() == http::verb::post, client);
}

tl::expected<Deadline, Denial> read_deadline(const HttpFields& fields, Seconds limit) {
  const std::string_view given = view_of(fields["X-Request-Timeout"]);
  if (!given.empty()) {
    const std::optional<Seconds> seconds = read_seconds(given);
    if (!seconds) {
      return tl::unexpected(
          Denial{.status = 400,
                 .refusal = {.message = fmt::format("X-Request-Timeout: expected seconds, above 0 "
                                                    "and at most {}, got {}",
                                                    kMostSeconds, quoted(given))}});
    }
    limit = limit.count() > 0.0 ? std::min(limit, *seconds) : *seconds;
  }
  if (limit.count() <= 0.0) return Deadline();
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit);
}

}  // namespace kakeya::wire
