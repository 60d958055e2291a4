// The proxies that are believed when they say for whom they ask.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/status.h"

namespace kakeya::wire {

// Immutable; from any thread.
class TrustedProxies {
 public:
  // Each an address, a network as 10.0.0.0/8 or fd00::/8, or "unix" for whoever reaches a Unix
  // socket. Errors: kInvalidArgument.
  static Result<TrustedProxies> parse(std::span<const std::string> proxies);

  // The address for which a peer asks: itself, unless it is a trusted proxy. That is believed in
  // the fields Forwarded (RFC 7239) and X-Forwarded-For, several fields of a name joined by commas:
  // their last address that is no trusted proxy, or the first one if all are. What is malformed or
  // no address, and two fields that do not agree, say nothing: the peer itself counts.
  std::string client_of(const std::string& peer,
                        std::string_view forwarded,
                        std::string_view x_forwarded_for) const;

 private:
  // An address of IPv6; those of IPv4 are mapped into it.
  using Bytes = std::array<unsigned char, 16>;
  struct Network {
    Bytes bytes = {};
    int bits = 0;
  };

  static std::optional<Network> parse_network(std::string_view text);
  bool trusts(std::string_view address) const;
  // `nodes`: those through which a request came, the first one first; nothing for one that is no
  // address.
  std::optional<std::string> client_among(
      const std::vector<std::optional<std::string>>& nodes) const;

  std::vector<Network> networks_;
  bool unix_ = false;
};

}  // namespace kakeya::wire
