#include "wire/http/keys.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <utility>

#include "base/status.h"

namespace kakeya::wire {
namespace {

using Digest = std::array<unsigned char, 32>;

Digest digest_of(std::string_view key) {
  Digest digest;
  ::SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

std::string hex_of(const Digest& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

bool parse_digest(std::string_view text, Digest& out) {
  if (text.size() != 2 * out.size()) return false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const char* const begin = text.data() + 2 * i;
    const auto parsed = std::from_chars(begin, begin + 2, out[i], 16);
    if (parsed.ec != std::errc() || parsed.ptr != begin + 2) return false;
  }
  return true;
}

constexpr std::string_view kPriorityTerm = "priority=";

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return number;
}

// Names become labels of metrics, and are printed.
bool is_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !name.empty() && name.size() <= kMostKeyNameBytes && std::ranges::all_of(name, fits);
}

}  // namespace

Result<NewKey> make_key(std::string_view name) {
  if (!is_name(name)) {
    return invalid_argument("a key's name must be 1 to {} of a-z, A-Z, 0-9, '-', '_' and '.'",
                            kMostKeyNameBytes);
  }
  Digest random;
  if (::RAND_bytes(random.data(), static_cast<int>(random.size())) != 1) {
    return error(StatusCode::kUnavailable, "the system gives no random bytes for a key");
  }
  std::string key = "kakeya-" + hex_of(random);
  std::string line = fmt::format("{}:{}", name, hex_of(digest_of(key)));
  return NewKey{.key = std::move(key), .line = std::move(line)};
}

Status Keys::parse_terms(std::string_view terms, const std::string& where, Entry& entry) {
  const std::size_t colon = terms.find(':');
  const std::string_view last = terms.substr(colon == terms.npos ? 0 : colon + 1);
  const bool has_priority = last.starts_with(kPriorityTerm);
  if (has_priority) {
    const auto priority = number_in(last.substr(kPriorityTerm.size()));
    if (!priority || *priority > 0 || *priority < -std::numeric_limits<int>::max()) {
      return invalid_argument("{}: expected priority=K, of {} to 0, behind the hash of '{}'", where,
                              -std::numeric_limits<int>::max(), entry.name);
    }
    entry.most_urgent = static_cast<int>(*priority);
    if (colon == terms.npos) return {};
  }
  const auto quota = number_in(has_priority ? terms.substr(0, colon) : terms);
  if (!quota || *quota < 1 || *quota > kMostRequestsPerMinute) {
    return invalid_argument("{}: expected 1 to {} requests a minute behind the hash of '{}'", where,
                            kMostRequestsPerMinute, entry.name);
  }
  entry.per_minute = *quota;
  return {};
}

Result<Keys::Entry> Keys::parse_line(std::string_view line, const std::string& where) {
  Entry entry;
  const std::size_t first = line.find(':');
  const std::string_view name = line.substr(0, first);
  // A wrong name is not shown: it may be a key.
  if (first == std::string_view::npos || !is_name(name)) {
    return invalid_argument(
        "{}: expected NAME:HASH, a name of 1 to {} of a-z, A-Z, 0-9, -, _ and .", where,
        kMostKeyNameBytes);
  }
  entry.name = name;
  std::string_view hash = line.substr(first + 1);
  const std::size_t second = hash.find(':');
  if (second != std::string_view::npos) {
    KAKEYA_TRY(parse_terms(hash.substr(second + 1), where, entry));
    hash = hash.substr(0, second);
  }
  if (!parse_digest(hash, entry.digest)) {
    return invalid_argument("{}: expected 64 hexadecimal digits, the SHA-256 of the key of '{}'",
                            where, entry.name);
  }
  entry.left = entry.most();
  return entry;
}

Status Keys::add(Entry entry, const std::string& where) {
  for (const Entry& other : entries_) {
    if (other.name == entry.name) {
      return invalid_argument("{}: the name '{}' comes twice", where, entry.name);
    }
    if (other.digest == entry.digest) {
      return invalid_argument("{}: '{}' and '{}' have the same key", where, other.name, entry.name);
    }
  }
  if (entries_.size() == kMostKeys) {
    return invalid_argument("{}: expected at most {} keys", where, kMostKeys);
  }
  entries_.push_back(std::move(entry));
  return {};
}

Result<Keys> Keys::parse(std::string_view text, const std::string& where) {
  Keys keys;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    const std::string place = fmt::format("{}, line {}", where, number);
    KAKEYA_ASSIGN_OR_RETURN(Entry entry, parse_line(line, place));
    KAKEYA_TRY(keys.add(std::move(entry), place));
  }
  if (keys.entries_.empty()) return invalid_argument("{}: there is no key", where);
  return keys;
}

Result<Keys> Keys::load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return error(StatusCode::kNotFound, "the keys' file {} cannot be opened", path);
  std::string text(kMostKeysFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return invalid_argument("the keys' file {} cannot be read", path);
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMostKeysFileBytes) {
    return invalid_argument("{}: expected at most {} bytes of keys", path, kMostKeysFileBytes);
  }
  return parse(text, path);
}

std::optional<std::size_t> Keys::find(std::string_view key) const {
  const Digest digest = digest_of(key);
  std::size_t found = entries_.size();
  for (std::size_t i = 0; i < entries_.size(); ++i) {  // all of them, whichever it is
    const bool same = CRYPTO_memcmp(digest.data(), entries_[i].digest.data(), digest.size()) == 0;
    found = same ? i : found;
  }
  if (found == entries_.size()) return std::nullopt;
  return found;
}

std::int64_t Keys::seconds_until_allowed(std::size_t index, Time now) {
  const std::lock_guard lock(*quotas_);
  Entry& entry = entries_[index];
  if (entry.per_minute == 0) return 0;
  const double rate = static_cast<double>(entry.per_minute) / 60.0;
  const std::chrono::duration<double> since = now - entry.looked.value_or(now);
  entry.left = std::min(entry.most(), entry.left + rate * since.count());
  entry.looked = now;
  // A place that rounding has left a little short is one.
  constexpr double kRounding = 1e-9;
  if (entry.left < 1.0 - kRounding) {
    return static_cast<std::int64_t>(std::ceil((1.0 - entry.left) / rate - kRounding));
  }
  entry.left -= 1.0;
  return 0;
}

void Keys::charge(std::string_view name, std::int64_t places) {
  const std::lock_guard lock(*quotas_);
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  if (found != entries_.end() && found->per_minute > 0) {
    found->left -= static_cast<double>(places);
  }
}

void Keys::take_quotas(const Keys& old) {
  const std::lock_guard lock(*old.quotas_);
  for (Entry& entry : entries_) {
    const auto same = [&entry](const Entry& other) {
      return other.name == entry.name && other.per_minute > 0;
    };
    const auto found = std::ranges::find_if(old.entries_, same);
    if (found == old.entries_.end()) continue;
    entry.left = found->left / found->most() * entry.most();
    entry.looked = found->looked;
  }
}

}  // namespace kakeya::wire
