#include "keys.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>

#include "base/status.h"
#include "small_file.h"

namespace kakeya::bridge {
namespace {

struct FreeKey {
  void operator()(EVP_PKEY* key) const { ::EVP_PKEY_free(key); }
};
using KeyPointer = std::unique_ptr<EVP_PKEY, FreeKey>;

struct FreeDigest {
  void operator()(EVP_MD_CTX* context) const { ::EVP_MD_CTX_free(context); }
};
using DigestPointer = std::unique_ptr<EVP_MD_CTX, FreeDigest>;

const unsigned char* unsigned_data(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

bool is_peer_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, fits);
}

// Why the file of a key cannot be trusted with it; empty: it can.
std::string problem_of_key_file(int file) {
  struct stat info = {};
  if (::fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) return "expected a regular file";
  if (info.st_uid != ::geteuid()) return "expected a file of this user";
  if ((info.st_mode & 077) != 0) {
    return fmt::format("expected mode 0600, got {:04o}: others may have read it",
                       info.st_mode & 0777);
  }
  return "";
}

}  // namespace

std::string to_hex(std::span<const unsigned char> bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

bool from_hex(std::string_view text, std::span<unsigned char> bytes) {
  if (text.size() != 2 * bytes.size()) return false;
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (!std::ranges::all_of(text, is_digit)) return false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, bytes[i], 16);
  }
  return true;
}

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest = {};
  ::SHA256(unsigned_data(bytes), bytes.size(), digest.data());
  return to_hex(digest);
}

Status random_bytes(std::span<unsigned char> bytes) {
  if (::RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1) return {};
  return error(StatusCode::kUnavailable, "the system gives no random bytes");
}

SigningKey::SigningKey(SigningKey&& other) noexcept {
  *this = std::move(other);
}

SigningKey& SigningKey::operator=(SigningKey&& other) noexcept {
  if (this == &other) return *this;
  seed_ = other.seed_;
  public_key_ = other.public_key_;
  ::OPENSSL_cleanse(other.seed_.data(), other.seed_.size());
  return *this;
}

SigningKey::~SigningKey() {
  ::OPENSSL_cleanse(seed_.data(), seed_.size());
}

Status SigningKey::derive_public_key() {
  const KeyPointer key(
      ::EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed_.data(), seed_.size()));
  std::size_t bytes = public_key_.size();
  if (key == nullptr || ::EVP_PKEY_get_raw_public_key(key.get(), public_key_.data(), &bytes) != 1) {
    return error(StatusCode::kInternal, "OpenSSL has no Ed25519 here");
  }
  return {};
}

Result<SigningKey> SigningKey::make() {
  SigningKey key;
  KAKEYA_TRY(random_bytes(key.seed_));
  KAKEYA_TRY(key.derive_public_key());
  return key;
}

Result<SigningKey> SigningKey::load(const std::string& path) {
  // Closed before anything runs, and not left to a program that is started meanwhile.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0 && errno == ENOENT) {
    return error(StatusCode::kNotFound, "there is no key {}: kakeya bridge keygen NAME", path);
  }
  const std::string problem =
      file.get() < 0 ? std::string(std::strerror(errno)) : problem_of_key_file(file.get());
  if (!problem.empty()) {
    return error(StatusCode::kFailedPrecondition, "the key {}: {}", path, problem);
  }
  std::array<char, 66> text = {};
  const ssize_t bytes = ::read(file.get(), text.data(), text.size());
  SigningKey key;
  const std::string_view line(text.data(), bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
  const bool whole =
      line.size() == 65 && line.back() == '\n' && from_hex(line.substr(0, 64), key.seed_);
  ::OPENSSL_cleanse(text.data(), text.size());
  // A wrong line is not shown: it may be a key.
  if (!whole) return invalid_argument("the key {}: expected a line of 64 hexadecimal digits", path);
  KAKEYA_TRY(key.derive_public_key());
  return key;
}

Status SigningKey::save(const std::string& path) const {
  const Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.get() < 0) {
    const StatusCode code =
        errno == EEXIST ? StatusCode::kFailedPrecondition : StatusCode::kUnavailable;
    return error(code, "cannot make the key {}: {}", path, std::strerror(errno));
  }
  std::string text = to_hex(seed_) + "\n";
  const bool written =
      ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fsync(file.get()) == 0;
  ::OPENSSL_cleanse(text.data(), text.size());
  if (!written) return error(StatusCode::kUnavailable, "cannot write the key {}", path);
  return {};
}

Result<Signature> SigningKey::sign(std::string_view bytes) const {
  const KeyPointer key(
      ::EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed_.data(), seed_.size()));
  const DigestPointer context(::EVP_MD_CTX_new());
  Signature signature = {};
  std::size_t size = signature.size();
  if (key == nullptr || context == nullptr ||
      ::EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1 ||
      ::EVP_DigestSign(context.get(), signature.data(), &size, unsigned_data(bytes),
                       bytes.size()) != 1) {
    return error(StatusCode::kInternal, "OpenSSL does not sign");
  }
  return signature;
}

bool is_signed_by(const PublicKey& key, std::string_view bytes, const Signature& signature) {
  const KeyPointer verifier(
      ::EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, key.data(), key.size()));
  const DigestPointer context(::EVP_MD_CTX_new());
  return verifier != nullptr && context != nullptr &&
         ::EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, verifier.get()) == 1 &&
         ::EVP_DigestVerify(context.get(), signature.data(), signature.size(), unsigned_data(bytes),
                            bytes.size()) == 1;
}

Status Peers::add(std::string_view line, const std::string& where) {
  const std::size_t colon = line.find(':');
  Peer peer{.name = std::string(line.substr(0, colon))};
  if (colon == std::string_view::npos || !is_peer_name(peer.name) ||
      !from_hex(line.substr(colon + 1), peer.key)) {
    return invalid_argument(
        "{}: expected NAME:KEY, a line of key.pub: 64 hexadecimal digits behind a name", where);
  }
  if (find(peer.name) != nullptr) {
    return invalid_argument("{}: the name '{}' comes twice", where, peer.name);
  }
  if (const Peer* other = find(peer.key)) {
    return invalid_argument("{}: '{}' and '{}' have the same key", where, other->name, peer.name);
  }
  if (peers_.size() == kMostPeers) {
    return invalid_argument("{}: expected at most {} keys", where, kMostPeers);
  }
  peers_.push_back(std::move(peer));
  return {};
}

Result<Peers> Peers::parse(std::string_view text, const std::string& where) {
  Peers peers;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty() || line.front() == '#') continue;
    KAKEYA_TRY(peers.add(line, fmt::format("{}, line {}", where, number)));
  }
  if (peers.peers_.empty()) {
    return invalid_argument("{}: there is no key; expected lines of the other sides' key.pub",
                            where);
  }
  return peers;
}

Result<Peers> Peers::load(const std::string& path) {
  const auto text = read_small_file(AT_FDCWD, path, kMostPeersFileBytes, Sharing::kOwner);
  if (!text && text.error().code() == StatusCode::kNotFound) {
    return error(StatusCode::kNotFound,
                 "there is no {}: put the line of the other side's key.pub there", path);
  }
  if (!text) return Unexpected(text.error());
  return parse(*text, path);
}

Result<std::string> Peers::line(const std::string& name, const PublicKey& key) {
  if (!is_peer_name(name)) {
    return invalid_argument("a key's name must be 1 to 64 of a-z, A-Z, 0-9, '-', '_' and '.'");
  }
  return fmt::format("{}:{}", name, to_hex(key));
}

const Peers::Peer* Peers::find(const PublicKey& key) const {
  const auto found = std::ranges::find(peers_, key, &Peer::key);
  return found == peers_.end() ? nullptr : &*found;
}

const Peers::Peer* Peers::find(std::string_view name) const {
  const auto found = std::ranges::find(peers_, name, &Peer::name);
  return found == peers_.end() ? nullptr : &*found;
}

}  // namespace kakeya::bridge
