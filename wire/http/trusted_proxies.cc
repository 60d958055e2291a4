#include "wire/http/trusted_proxies.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/beast/core/string.hpp>
#include <charconv>
#include <utility>

#include "base/status.h"

namespace kakeya::wire {
namespace {

namespace ip = boost::asio::ip;
using Nodes = std::vector<std::optional<std::string>>;

constexpr std::string_view kUnix = "unix";
constexpr std::string_view kBlanks = " \t";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// Addresses of IPv4 that are mapped into IPv6 become those of IPv4 again.
std::optional<ip::address> parse_address(std::string_view text) {
  boost::system::error_code failure;
  const ip::address address = ip::make_address(std::string(text), failure);
  if (failure) return std::nullopt;
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return ip::make_address_v4(ip::v4_mapped, address.to_v6());
  }
  return address;
}

// 192.0.2.1, 192.0.2.1:80, 2001:db8::1, [2001:db8::1] or [2001:db8::1]:80.
std::optional<std::string> address_of_node(std::string_view node) {
  std::string_view host = node;
  std::string_view port;
  if (node.starts_with('[')) {
    const std::size_t end = node.find(']');
    if (end == node.npos) return std::nullopt;
    host = node.substr(1, end - 1);
    port = node.substr(end + 1);
  } else if (const std::size_t colon = node.find(':');
             colon != node.npos && colon == node.rfind(':')) {
    host = node.substr(0, colon);
    port = node.substr(colon);
  }
  if (!port.empty() && (!port.starts_with(':') || !is_number(port.substr(1)))) return std::nullopt;
  const auto address = parse_address(host);
  return address ? std::optional(address->to_string()) : std::nullopt;
}

// Splits at a byte that stands in no quoted text; nothing for a quoted text without an end.
std::optional<std::vector<std::string_view>> split_unquoted(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  bool quoted = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (text[i] == at && !quoted) {
      parts.push_back(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  if (quoted) return std::nullopt;
  parts.push_back(trimmed(text.substr(begin)));
  return parts;
}

// The node that the one parameter "for" of an element of Forwarded names.
std::optional<std::string> node_of_element(std::string_view element) {
  std::optional<std::string> node;
  const auto pairs = split_unquoted(element, ';');
  if (!pairs) return std::nullopt;
  for (const std::string_view pair : *pairs) {
    const std::string_view name = pair.substr(0, pair.find('='));
    if (!boost::beast::iequals({name.data(), name.size()}, "for")) continue;
    if (node || name.size() == pair.size()) return std::nullopt;
    std::string_view value = pair.substr(name.size() + 1);
    // No address has a byte that had to be escaped.
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
      value = value.substr(1, value.size() - 2);
    }
    node = address_of_node(value);
    if (!node) return std::nullopt;
  }
  return node;
}

Nodes nodes_of_forwarded(std::string_view field) {
  const auto elements = split_unquoted(field, ',');
  if (!elements) return {std::nullopt};
  Nodes nodes;
  for (const std::string_view element : *elements) nodes.push_back(node_of_element(element));
  return nodes;
}

Nodes nodes_of_x_forwarded_for(std::string_view field) {
  Nodes nodes;
  for (std::size_t begin = 0; begin <= field.size();) {
    const std::size_t end = std::min(field.find(',', begin), field.size());
    nodes.push_back(address_of_node(trimmed(field.substr(begin, end - begin))));
    begin = end + 1;
  }
  return nodes;
}

}  // namespace

std::optional<TrustedProxies::Network> TrustedProxies::parse_network(std::string_view text) {
  const std::size_t slash = text.find('/');
  const auto address = parse_address(text.substr(0, slash));
  if (!address) return std::nullopt;
  const int most = address->is_v4() ? 32 : 128;
  int bits = most;
  if (slash != text.npos) {
    const std::string_view number = text.substr(slash + 1);
    const char* const end = number.data() + number.size();
    const auto parsed = std::from_chars(number.data(), end, bits);
    const bool sound = parsed.ec == std::errc() && parsed.ptr == end && bits >= 0 && bits <= most;
    if (!sound) return std::nullopt;
  }
  const ip::address_v6 mapped =
      address->is_v4() ? ip::make_address_v6(ip::v4_mapped, address->to_v4()) : address->to_v6();
  return Network{.bytes = mapped.to_bytes(), .bits = bits + 128 - most};
}

Result<TrustedProxies> TrustedProxies::parse(std::span<const std::string> proxies) {
  TrustedProxies parsed;
  for (const std::string& proxy : proxies) {
    if (proxy == kUnix) {
      parsed.unix_ = true;
      continue;
    }
    const auto network = parse_network(proxy);
    if (!network) {
      return invalid_argument(
          "HttpOptions::trusted_proxies must be an address as 10.0.0.1, a network as 10.0.0.0/8, "
          "or unix, but is '{}'",
          proxy);
    }
    parsed.networks_.push_back(*network);
  }
  return parsed;
}

bool TrustedProxies::trusts(std::string_view address) const {
  if (address == kUnix) return unix_;
  const auto asked = parse_network(address);
  if (!asked) return false;
  return std::ranges::any_of(networks_, [&](const Network& network) {
    for (int bit = 0; bit < network.bits; ++bit) {
      const auto at = static_cast<std::size_t>(bit / 8);
      if (((network.bytes[at] ^ asked->bytes[at]) >> (7 - bit % 8) & 1) != 0) return false;
    }
    return true;
  });
}

std::optional<std::string> TrustedProxies::client_among(const Nodes& nodes) const {
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (!*node || !trusts(**node)) return *node;
  }
  return nodes.front();
}

std::string TrustedProxies::client_of(const std::string& peer,
                                      std::string_view forwarded,
                                      std::string_view x_forwarded_for) const {
  if (!trusts(peer)) return peer;
  const bool is_forwarded = !forwarded.empty();
  const bool is_for = !x_forwarded_for.empty();
  if (!is_forwarded && !is_for) return peer;
  // A proxy that sets one of them passes on what a client has put into the other.
  const auto first = is_forwarded ? client_among(nodes_of_forwarded(forwarded))
                                  : client_among(nodes_of_x_forwarded_for(x_forwarded_for));
  const auto second = is_for ? client_among(nodes_of_x_forwarded_for(x_forwarded_for)) : first;
  return first == second ? first.value_or(peer) : peer;
}

}  // namespace kakeya::wire
