#include "cli/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <cstdint>

namespace kakeya::cli {

std::string text_sha256(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) {
    return "";
  }
  std::string hash;
  for (unsigned int i = 0; i < size; ++i) hash += fmt::format("{:02x}", digest[i]);
  return hash;
}

std::string ids_sha256(std::span<const TokenId> ids) {
  std::string bytes;
  for (const TokenId id : ids) {
    const auto value = static_cast<std::uint32_t>(id);
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<char>((value >> shift) & 0xff));
    }
  }
  return text_sha256(bytes);
}

}  // namespace kakeya::cli
