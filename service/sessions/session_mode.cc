#include "service/sessions/session_mode.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace kakeya::service {
namespace {

constexpr std::array<std::pair<Decoding, std::string_view>, 3> kDecodings = {
    {{Decoding::kAuto, "auto"},
     {Decoding::kPlain, "plain"},
     {Decoding::kSpeculative, "speculative"}}};
constexpr std::array<std::pair<Evicted, std::string_view>, 3> kEvictions = {
    {{Evicted::kKeep, "keep"}, {Evicted::kDrop, "drop"}, {Evicted::kRestore, "restore"}}};

template <typename Value, std::size_t N>
std::string_view name_in(const std::array<std::pair<Value, std::string_view>, N>& names,
                         Value value) {
  for (const auto& [each, name] : names) {
    if (each == value) return name;
  }
  return {};
}

template <typename Value, std::size_t N>
std::optional<Value> value_in(const std::array<std::pair<Value, std::string_view>, N>& names,
                              std::string_view name) {
  for (const auto& [value, each] : names) {
    if (each == name) return value;
  }
  return {};
}

tl::unexpected<Refusal> refuse_mode(const char* parameter, std::string message) {
  return tl::unexpected(Refusal{.message = std::move(message), .parameter = parameter});
}

}  // namespace

std::string_view decoding_name(Decoding decoding) {
  return name_in(kDecodings, decoding);
}

std::string_view evicted_name(Evicted evicted) {
  return name_in(kEvictions, evicted);
}

std::optional<Decoding> find_decoding(std::string_view name) {
  return value_in(kDecodings, name);
}

std::optional<Evicted> find_evicted(std::string_view name) {
  return value_in(kEvictions, name);
}

Outcome<SessionOptions> session_options_of(const Engine& engine, const SessionMode& mode) {
  SessionOptions options = engine.session_options();
  const bool can_draft = options.drafting && engine.draft_kind() != DraftKind::kNone;
  if (mode.decoding == Decoding::kSpeculative && !can_draft) {
    return refuse_mode("decoding",
                       "decoding: expected auto or plain, for nothing drafts here, "
                       "got speculative");
  }
  if (mode.decoding == Decoding::kPlain) options.drafting = false;
  const Evicted evicted = mode.evicted.value_or(options.evicted_full);
  const std::int64_t window = mode.window.value_or(options.window);
  if (mode.evicted && *mode.evicted != Evicted::kKeep && window == 0) {
    return refuse_mode("window", fmt::format("window: expected at least 1 where rows outside of it "
                                             "are evicted ({}), got 0",
                                             evicted_name(evicted)));
  }
  if (evicted == Evicted::kKeep && (mode.window || mode.sink) && !mode.evicted) {
    return refuse_mode("evicted",
                       "evicted: expected drop or restore with a window or a sink, "
                       "got nothing");
  }
  options.evicted_full = evicted;
  options.sink = mode.sink.value_or(options.sink);
  options.window = window;
  if (const auto estimate = engine.estimate_session(options); !estimate) {
    return tl::unexpected(refusal_of(estimate.error()));
  }
  return options;
}

std::string mode_text(const SessionMode& mode) {
  nlohmann::ordered_json text = {{"decoding", decoding_name(mode.decoding)}};
  if (mode.evicted) text["evicted"] = evicted_name(*mode.evicted);
  if (mode.sink) text["sink"] = *mode.sink;
  if (mode.window) text["window"] = *mode.window;
  return text.dump();
}

Result<SessionMode> parse_mode(const std::string& text) {
  const auto damaged = [&] {
    return error(StatusCode::kDataLoss, "expected the mode of a session, got '{}'", text);
  };
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return damaged();
  SessionMode mode;
  for (const auto& [name, value] : json.items()) {
    if (name == "decoding" && value.is_string()) {
      const auto found = find_decoding(value.get_ref<const std::string&>());
      if (!found) return damaged();
      mode.decoding = *found;
    } else if (name == "evicted" && value.is_string()) {
      mode.evicted = find_evicted(value.get_ref<const std::string&>());
      if (!mode.evicted) return damaged();
    } else if (name == "sink" && value.is_number_integer()) {
      mode.sink = value.get<std::int64_t>();
    } else if (name == "window" && value.is_number_integer()) {
      mode.window = value.get<std::int64_t>();
    } else {
      return damaged();
    }
  }
  return mode;
}

}  // namespace kakeya::service
