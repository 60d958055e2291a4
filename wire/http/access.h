// Who may ask, and how: keys, TLS, and the names by which a server may be called.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/status.h"
#include "service/client.h"
#include "service/refusal.h"
#include "wire/http/http_options.h"
#include "wire/http/keys.h"
#include "wire/http/trusted_proxies.h"

namespace kakeya::wire {

// Why a request is not let in.
struct Denial {
  unsigned status = 401;  // of HTTP
  service::Refusal refusal;
  std::int64_t retry_after = 0;  // seconds; 0: not said
};

// Where a request may have a key, each a field of its header; empty: it has not.
struct Credentials {
  std::string_view authorization = {};  // "Bearer KEY" (RFC 6750), which most clients send
  std::string_view x_api_key = {};      // as some clients send it
  std::string_view api_key = {};        // as Azure's do
};

// Thread-safe.
class Access {
 public:
  // Errors: kInvalidArgument for an address that other machines reach without keys and TLS, for a
  // certificate and a key of it that are none or not of each other; as Keys::load() and
  // TrustedProxies::parse().
  static Result<std::unique_ptr<Access>> open(const HttpOptions& options);

  // Reads the file of keys anew, if there is one; how many there are. What is left of a quota goes
  // on. Requests that were let in are answered. Errors: as Keys::load(); all stays as it was then.
  Result<std::size_t> reload_keys();

  // Null without TLS.
  boost::asio::ssl::context* tls() const { return tls_ ? &*tls_ : nullptr; }

  // True if the field Host of a request, with or without a port, is a name of this server: the
  // loopback's; with TLS one of the certificate's; with keys any address in digits too; on a Unix
  // socket any; and HttpOptions::allowed_hosts. Case does not matter. A page of another site
  // reaches this machine by names of its own alone.
  bool knows_host(std::string_view host) const;

  const TrustedProxies& proxies() const { return proxies_; }

  // True if a page of this origin, as "https://example.com", may read answers.
  bool lets_read(std::string_view origin) const;

  // Tells `client` the key that a request has, and its terms, unless everybody may ask. A request
  // that `counts` takes a place in the key's quota.
  tl::expected<void, Denial> admit(const Credentials& given, bool counts, service::Client& client);
  // Takes so many places more for a request that was let in with this key.
  void charge(std::string_view key_name, std::int64_t places);

 private:
  Access() = default;
  Status open_tls(const HttpOptions& options);

  std::shared_ptr<Keys> keys() const;

  bool any_host_ = false;                  // of a Unix socket, which no page of a browser reaches
  std::vector<std::string> hosts_ = {};    // names besides
  std::vector<std::string> origins_ = {};  // of pages
  TrustedProxies proxies_;
  std::string keys_file_;  // empty: everybody may ask
  mutable std::mutex mutex_;
  std::shared_ptr<Keys> keys_;  // under mutex_
  mutable std::optional<boost::asio::ssl::context> tls_;
};

}  // namespace kakeya::wire
