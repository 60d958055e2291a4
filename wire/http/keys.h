// The keys that a server asks of its clients, as a file of lines
//   NAME:HASH  or  NAME:HASH:REQUESTS_PER_MINUTE, and each of them with :priority=K
// where HASH is the SHA-256 of the key in hexadecimal, and K the lowest number, which is the most
// urgent, that a request of the key may have as its priority; 0 if it is not said. Keys are random,
// 256 bits of them, so that nobody can guess one of its hash, however fast. Empty lines, and those
// that begin with #, say nothing.
#pragma once

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/status.h"

namespace kakeya::wire {

inline constexpr std::size_t kMostKeys = 1024;
inline constexpr std::size_t kMostKeyNameBytes = 64;
inline constexpr std::size_t kMostKeysFileBytes = std::size_t{1} << 20;
inline constexpr std::int64_t kMostRequestsPerMinute = 1'000'000;

struct NewKey {
  std::string key;   // to be given to one client, and kept nowhere else
  std::string line;  // of the keys' file, without its end
};
// A random one. Errors: kInvalidArgument for a name that is none, kUnavailable without randomness.
Result<NewKey> make_key(std::string_view name);

// Thread-safe.
class Keys {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Errors: kInvalidArgument with the line for what is no such line, names and keys that come
  // twice, too many and none at all; of load() kNotFound too.
  static Result<Keys> parse(std::string_view text, const std::string& where);
  static Result<Keys> load(const std::string& path);

  // Which key it is, by its index; nothing if it is none. Takes the same time for whatever is no
  // key, and for every key.
  std::optional<std::size_t> find(std::string_view key) const;

  // A place in the key's quota for a request that came `now`: 0, or else after how many whole
  // seconds there will be one. Places come evenly, and a quarter of a minute's can be saved up, so
  // that no minute has more than 1.25 times the quota. Times do not go back.
  std::int64_t seconds_until_allowed(std::size_t index, Time now);
  // Takes so many places more, for a request that is worth several: those that come next are its.
  void charge(std::string_view name, std::int64_t places);

  // Takes over, for keys that `old` had by the same name, the parts of their quotas that are left.
  void take_quotas(const Keys& old);

  const std::string& name(std::size_t index) const { return entries_[index].name; }
  // The most urgent priority that its requests may have: 0 or less.
  int most_urgent(std::size_t index) const { return entries_[index].most_urgent; }
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string name;
    std::array<unsigned char, 32> digest = {};
    std::int64_t per_minute = 0;  // 0: any number
    int most_urgent = 0;
    double left = 0.0;  // requests; below 0: places that were taken ahead
    std::optional<Time> looked = {};

    // The most that can be saved up.
    double most() const { return std::ceil(static_cast<double>(per_minute) / 4.0); }
  };

  // Reads what stands behind a key's hash.
  static Status parse_terms(std::string_view terms, const std::string& where, Entry& entry);
  static Result<Entry> parse_line(std::string_view line, const std::string& where);
  Status add(Entry entry, const std::string& where);

  std::vector<Entry> entries_;
  std::unique_ptr<std::mutex> quotas_ = std::make_unique<std::mutex>();
};

}  // namespace kakeya::wire
