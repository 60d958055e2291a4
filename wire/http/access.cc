#include "wire/http/access.h"

#include <fmt/format.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/beast/core/string.hpp>
#include <utility>

#include "base/status.h"
#include "wire/http/local_address.h"

namespace kakeya::wire {
namespace {

namespace ssl = boost::asio::ssl;

// Empty: there is none.
std::string_view key_of(const Credentials& given) {
  constexpr std::string_view kScheme = "Bearer ";
  const bool bears = given.authorization.size() > kScheme.size() &&
                     boost::beast::iequals({given.authorization.data(), kScheme.size()},
                                           {kScheme.data(), kScheme.size()});
  if (bears) return given.authorization.substr(kScheme.size());
  return given.x_api_key.empty() ? given.api_key : given.x_api_key;
}

// A name as knows_host() compares it. Another one would never be asked for.
bool is_host_name(std::string_view name) {
  constexpr std::string_view kOfNames =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
  if (!name.empty() && name.find_first_not_of(kOfNames) == name.npos) return true;
  boost::system::error_code none;
  boost::asio::ip::make_address(name, none);
  return !none;
}

// An origin as browsers send it: SCHEME://HOST[:PORT], without a path, or null; or * for any.
bool is_origin(std::string_view origin) {
  if (origin == "*" || origin == "null") return true;
  const std::size_t scheme = origin.find("://");
  if (scheme == origin.npos || scheme == 0) return false;
  const std::string_view host = origin.substr(scheme + 3);
  return !host.empty() && host.find_first_of("/?#@* ") == host.npos;
}

Status check_names(const HttpOptions& options) {
  for (const std::string& name : options.allowed_hosts) {
    if (is_host_name(name)) continue;
    return invalid_argument(
        "HttpOptions::allowed_hosts must be a name as llm.example.com, without scheme, port and "
        "path, but is '{}'",
        name);
  }
  for (const std::string& origin : options.allowed_origins) {
    if (is_origin(origin)) continue;
    return invalid_argument(
        "HttpOptions::allowed_origins must be as https://example.com or https://example.com:8443, "
        "without a path, or *, but is '{}'",
        origin);
  }
  return {};
}

Status check_options(const HttpOptions& options) {
  KAKEYA_TRY(check_names(options));
  const bool has_tls = !options.tls_certificate.empty();
  if (has_tls != !options.tls_key.empty()) {
    return invalid_argument(
        "TLS takes two files, HttpOptions::tls_certificate and HttpOptions::tls_key");
  }
  if (!options.socket_path.empty()) return {};
  KAKEYA_ASSIGN_OR_RETURN(const std::string host, listen_address(options.host));
  if (is_local_host(options.host) || (has_tls && !options.keys_file.empty())) return {};
  return invalid_argument(
      "other machines reach HttpOptions::host {}, which takes keys and TLS: give "
      "HttpOptions::keys_file, HttpOptions::tls_certificate and HttpOptions::tls_key",
      host);
}

}  // namespace

Result<std::unique_ptr<Access>> Access::open(const HttpOptions& options) {
  KAKEYA_TRY(check_options(options));
  std::unique_ptr<Access> access(new Access());
  access->any_host_ = !options.socket_path.empty();
  access->hosts_ = options.allowed_hosts;
  access->origins_ = options.allowed_origins;
  KAKEYA_ASSIGN_OR_RETURN(access->proxies_, TrustedProxies::parse(options.trusted_proxies));
  if (!options.keys_file.empty()) {
    access->keys_file_ = options.keys_file;
    KAKEYA_TRY(access->reload_keys());
  }
  if (!options.tls_certificate.empty()) KAKEYA_TRY(access->open_tls(options));
  return access;
}

Result<std::size_t> Access::reload_keys() {
  if (keys_file_.empty()) return 0;
  KAKEYA_ASSIGN_OR_RETURN(Keys loaded, Keys::load(keys_file_));
  const auto fresh = std::make_shared<Keys>(std::move(loaded));
  const std::lock_guard lock(mutex_);
  if (keys_) fresh->take_quotas(*keys_);
  keys_ = fresh;
  return fresh->size();
}

std::shared_ptr<Keys> Access::keys() const {
  const std::lock_guard lock(mutex_);
  return keys_;
}

Status Access::open_tls(const HttpOptions& options) {
  tls_.emplace(ssl::context::tls_server);
  ::SSL_CTX_set_min_proto_version(tls_->native_handle(), TLS1_2_VERSION);
  ::SSL_CTX_set_options(tls_->native_handle(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  boost::system::error_code failure;
  // A key that asks for a password is refused; OpenSSL would ask at the terminal.
  tls_->set_password_callback([](std::size_t, ssl::context::password_purpose) { return ""; },
                              failure);
  tls_->use_certificate_chain_file(options.tls_certificate, failure);
  if (failure) {
    return invalid_argument(
        "HttpOptions::tls_certificate must be a certificate in PEM, with its chain, but {} gives: "
        "{}",
        options.tls_certificate, failure.message());
  }
  tls_->use_private_key_file(options.tls_key, ssl::context::pem, failure);
  if (failure) {
    return invalid_argument(
        "HttpOptions::tls_key must be the certificate's key in PEM, without a password, but {} "
        "gives: {}",
        options.tls_key, failure.message());
  }
  return {};
}

bool Access::knows_host(std::string_view host) const {
  if (any_host_ || is_local_host(host)) return true;
  const std::string name(without_port(host));
  const auto is_name = [&name](const std::string& allowed) {
    return boost::beast::iequals(allowed, name);
  };
  if (std::ranges::any_of(hosts_, is_name)) return true;
  boost::system::error_code none;
  boost::asio::ip::make_address(name, none);
  if (!none) return !keys_file_.empty();
  if (!tls_) return false;
  X509* const certificate = ::SSL_CTX_get0_certificate(tls_->native_handle());
  return ::X509_check_host(certificate, name.data(), name.size(), 0, nullptr) == 1;
}

bool Access::lets_read(std::string_view origin) const {
  const auto allows = [origin](const std::string& allowed) {
    return allowed == "*" || boost::beast::iequals(allowed, {origin.data(), origin.size()});
  };
  return !origin.empty() && std::ranges::any_of(origins_, allows);
}

void Access::charge(std::string_view key_name, std::int64_t places) {
  const std::shared_ptr<Keys> keys = this->keys();
  if (keys && places > 0) keys->charge(key_name, places);
}

tl::expected<void, Denial> Access::admit(const Credentials& given,
                                         bool counts,
                                         service::Client& client) {
  const std::shared_ptr<Keys> keys = this->keys();
  if (!keys) return {};
  const std::string_view key = key_of(given);
  const auto found = keys->find(key);
  if (!found) {
    return tl::unexpected(Denial{
        .refusal = {.message = fmt::format("Authorization: expected Bearer and a key of this "
                                           "server, or x-api-key with one, got {}",
                                           key.empty() ? "nothing" : "another"),
                    .code = "invalid_api_key"}});
  }
  client.key = keys->name(*found);
  client.most_urgent = keys->most_urgent(*found);
  if (!counts) return {};
  const auto seconds = keys->seconds_until_allowed(*found, std::chrono::steady_clock::now());
  if (seconds == 0) return {};
  return tl::unexpected(Denial{
      .status = 429,
      .refusal = {.status = StatusCode::kResourceExhausted,
                  .message =
                      fmt::format("the key '{}' has no request left in this minute", client.key),
                  .code = "rate_limit_exceeded"},
      .retry_after = seconds});
}

}  // namespace kakeya::wire
