// Signed texts: what both sides of a bridge give each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kakeya/status.h"
#include "keys.h"

namespace kakeya::bridge {

using Json = nlohmann::ordered_json;

enum class Kind : std::uint8_t { kJob, kResult };

// The limits of a sealed text, looked at before it is read.
inline constexpr std::size_t kMostJobBytes = std::size_t{16} << 10;
inline constexpr std::size_t kMostResultBytes = std::size_t{32} << 20;
constexpr std::size_t most_bytes(Kind kind) {
  return kind == Kind::kJob ? kMostJobBytes : kMostResultBytes;
}

// The limits of a text's cost, counted before any of it is allocated: a bracket of one byte becomes
// a value of some eighty.
inline constexpr std::size_t kMostJsonDepth = 64;
inline constexpr std::size_t kMostJsonValues = 524'288;

// Parses a text that is a JSON object. Errors: kInvalidArgument.
Result<Json> parse_object(std::string_view text);

// On one line. Bytes that are no UTF-8 are replaced.
std::string json_line(const Json& json);

// A JSON object {"kakeya_bridge": 1, "payload": TEXT, "key", "signature"}. What is signed is the
// kind and the payload as text, byte for byte; one kind is never taken for the other. Errors:
// kInternal; kResourceExhausted if it is longer than its kind may be.
Result<std::string> seal(Kind kind, const Json& payload, const SigningKey& key);

struct Opened {
  Json payload;        // an object
  std::string sha256;  // of its text
  Peers::Peer signer;
};
// Reads nothing of the payload before its signature is known to be that of a peer. Errors:
// kInvalidArgument for what is no sealed text; kFailedPrecondition for a signature that is missing,
// wrong, or of nobody in `peers`. Messages hold nothing of the text.
Result<Opened> open_sealed(Kind kind, std::string_view text, const Peers& peers);

}  // namespace kakeya::bridge
