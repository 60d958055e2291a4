#include "service/replica_name.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/random_id.h"
#include "base/status.h"

namespace kakeya::service {
namespace {

constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyz0123456789-";
constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::size_t kRandomDigits = 32;  // of random_id()
// "-65535" stands behind it.
constexpr std::size_t kMostHostBytes = kMostReplicaNameBytes - 6;

bool is_made_of(std::string_view text, std::string_view characters) {
  return text.find_first_not_of(characters) == std::string_view::npos;
}

}  // namespace

Status check_replica_name(std::string_view name) {
  if (!name.empty() && name.size() <= kMostReplicaNameBytes && is_made_of(name, kNameCharacters))
    return {};
  return invalid_argument(
      "SessionsOptions::replica_name: expected 1 to {} characters of a-z, 0-9 and -, got '{}'",
      kMostReplicaNameBytes, name);
}

std::string replica_name_of(std::string_view host, std::uint16_t port) {
  std::string name;
  for (const char c : host.substr(0, kMostHostBytes)) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    name += is_made_of({&lower, 1}, kNameCharacters) ? lower : '-';
  }
  if (name.empty()) name = "replica";
  return name + (port != 0 ? fmt::format("-{}", port) : random_id("-").substr(0, 6));
}

std::string default_replica_name(std::uint16_t port) {
  std::array<char, 256> host = {};
  // Longer than any host's name; one that cannot be had is none.
  const bool is_known = ::gethostname(host.data(), host.size() - 1) == 0;
  return replica_name_of(is_known ? host.data() : "", port);
}

std::string id_prefix_of(std::string_view prefix, std::string_view name) {
  return name.empty() ? std::string(prefix) : fmt::format("{}{}_", prefix, name);
}

std::string_view replica_of(std::string_view id) {
  const std::size_t end = id.rfind('_');
  const std::string_view prefix = id.substr(0, 5);
  if ((prefix != "resp_" && prefix != "sess-") || end == std::string_view::npos || end < 6)
    return {};
  const std::string_view digits = id.substr(end + 1);
  if (digits.size() != kRandomDigits || !is_made_of(digits, kHexDigits)) return {};
  const std::string_view name = id.substr(prefix.size(), end - prefix.size());
  return check_replica_name(name) ? name : std::string_view();
}

std::string made_by(std::string_view id) {
  const std::string_view replica = replica_of(id);
  return replica.empty() ? std::string() : fmt::format(", made by replica '{}'", replica);
}

}  // namespace kakeya::service
