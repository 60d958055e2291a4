#include "service/cache_scope.h"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <array>

namespace kakeya::service {

std::string CacheScopes::of(std::string_view owner, std::string_view salt) const {
  if (!per_owner) owner = {};
  if (owner.empty() && salt.empty()) return {};
  const std::string both = fmt::format("{}:{}{}", owner.size(), owner, salt);
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest = {};
  ::SHA256(reinterpret_cast<const unsigned char*>(both.data()), both.size(), digest.data());
  std::string hash;
  for (const unsigned char byte : digest) hash += fmt::format("{:02x}", byte);
  return hash;
}

}  // namespace kakeya::service
