// Ed25519 keys of those who ask for checks and of machines that run them.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/status.h"

namespace kakeya::bridge {

inline constexpr std::size_t kMostPeers = 256;
inline constexpr std::size_t kMostPeersFileBytes = std::size_t{64} << 10;

using PublicKey = std::array<unsigned char, 32>;
using Signature = std::array<unsigned char, 64>;

// In lower case.
std::string to_hex(std::span<const unsigned char> bytes);
// False for another number of digits, and for what is no lower-case hexadecimal.
bool from_hex(std::string_view text, std::span<unsigned char> bytes);
// The SHA-256 of `bytes`, in hexadecimal.
std::string sha256_hex(std::string_view bytes);
// Fills `bytes` with random ones. Errors: kUnavailable if the system has none.
Status random_bytes(std::span<unsigned char> bytes);

// The secret half. Its memory is wiped when it goes.
class SigningKey {
 public:
  // A random one. Errors: kUnavailable.
  static Result<SigningKey> make();
  // Errors: kNotFound; kInvalidArgument for what is no key; kFailedPrecondition for a file that
  // others may read, that somebody else owns, or that is a link.
  static Result<SigningKey> load(const std::string& path);

  SigningKey(SigningKey&& other) noexcept;
  SigningKey& operator=(SigningKey&& other) noexcept;
  ~SigningKey();

  // Into a new file of mode 0600. Errors: kFailedPrecondition if there is one already;
  // kUnavailable.
  Status save(const std::string& path) const;
  const PublicKey& public_key() const { return public_key_; }
  // Errors: kInternal.
  Result<Signature> sign(std::string_view bytes) const;

 private:
  SigningKey() = default;
  Status derive_public_key();

  std::array<unsigned char, 32> seed_ = {};
  PublicKey public_key_ = {};
};

bool is_signed_by(const PublicKey& key, std::string_view bytes, const Signature& signature);

// Whose signatures count: a file of lines NAME:KEY, the key in hexadecimal. Empty lines, and those
// that begin with #, say nothing.
class Peers {
 public:
  struct Peer {
    std::string name;  // 1 to 64 of a-z, A-Z, 0-9, '-', '_' and '.'
    PublicKey key = {};
  };

  // Errors: kInvalidArgument with the line for what is none, for names and keys that come twice,
  // for too many and for none at all; of load() also kNotFound, and kFailedPrecondition for a file
  // that somebody else owns or may write.
  static Result<Peers> parse(std::string_view text, const std::string& where);
  static Result<Peers> load(const std::string& path);
  // The line of one peer in a file of peers.
  static Result<std::string> line(const std::string& name, const PublicKey& key);

  // Null: nobody's.
  const Peer* find(const PublicKey& key) const;
  const Peer* find(std::string_view name) const;
  std::span<const Peer> all() const { return peers_; }

 private:
  Status add(std::string_view line, const std::string& where);

  std::vector<Peer> peers_;
};

}  // namespace kakeya::bridge
