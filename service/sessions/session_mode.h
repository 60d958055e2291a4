// How a session decodes and what it keeps of its KV cache: chosen when it is made, for its life.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kakeya/engine.h"
#include "kakeya/options.h"
#include "kakeya/status.h"
#include "service/refusal.h"

namespace kakeya::service {

// kAuto: with drafts if the engine has something that drafts. The tokens are the same either way.
enum class Decoding : std::uint8_t { kAuto, kPlain, kSpeculative };

// Members without a value are as the engine's default session has them.
struct SessionMode {
  Decoding decoding = Decoding::kAuto;
  std::optional<Evicted> evicted = {};      // of full layers
  std::optional<std::int64_t> sink = {};    // of SessionOptions
  std::optional<std::int64_t> window = {};  // of SessionOptions

  bool operator==(const SessionMode&) const = default;
};

// "auto", "plain", "speculative"; "keep", "drop", "restore".
std::string_view decoding_name(Decoding decoding);
std::string_view evicted_name(Evicted evicted);
std::optional<Decoding> find_decoding(std::string_view name);
std::optional<Evicted> find_evicted(std::string_view name);

// The options of such a session. Errors: kInvalidArgument for what the engine cannot do: drafts
// without a drafter, restored rows without a projection, values out of range. Whatever it does not
// refuse runs as it says.
Outcome<SessionOptions> session_options_of(const Engine& engine, const SessionMode& mode);

// As one line of JSON, and back. Errors: kDataLoss for a text that mode_text() did not write.
std::string mode_text(const SessionMode& mode);
Result<SessionMode> parse_mode(const std::string& text);

}  // namespace kakeya::service
