#include "cli/hub/hub_settings.h"

#include <algorithm>
#include <cstdlib>

#include "base/status.h"
#include "cli/models/place_listing.h"
#include "formats/printable.h"

namespace kakeya::cli {
namespace {

constexpr const char* kHubEndpoint = "https://huggingface.co";
constexpr std::size_t kMostTokenBytes = 4096;

std::string trimmed(const std::string& text) {
  constexpr const char* kSpaces = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

bool is_on(std::string value) {
  std::ranges::transform(value, value.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

// The folder of the Hub's libraries; empty if no variable says where.
std::string home_of_hub(const Environment& environment) {
  std::string home = environment("HF_HOME");
  if (!home.empty()) return home;
  std::string cache = environment("XDG_CACHE_HOME");
  if (cache.empty() && !environment("HOME").empty()) cache = environment("HOME") + "/.cache";
  return cache.empty() ? "" : cache + "/huggingface";
}

Result<std::string> hub_token(const Environment& environment) {
  std::string from = "HF_TOKEN";
  std::string token = trimmed(environment(from));
  if (token.empty()) {
    from = environment("HF_TOKEN_PATH");
    const std::string home = home_of_hub(environment);
    if (from.empty() && !home.empty()) from = home + "/token";
    if (!from.empty()) token = trimmed(read_small_file(from, kMostTokenBytes).value_or(""));
  }
  if (std::ranges::all_of(token, [](char c) { return c > 0x20 && c < 0x7F; })) return token;
  return invalid_argument("{}: expected a token of the Hugging Face Hub in one word", from);
}

}  // namespace

Result<HubSettings> hub_settings(const Environment& environment) {
  if (is_on(environment("HF_HUB_OFFLINE"))) {
    return error(StatusCode::kFailedPrecondition,
                 "HF_HUB_OFFLINE is set: nothing is fetched from the Hugging Face Hub");
  }
  HubSettings settings = {.endpoint = environment("HF_ENDPOINT"), .token = {}, .cache = {}};
  if (settings.endpoint.empty()) settings.endpoint = kHubEndpoint;
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  if (!settings.endpoint.starts_with("http://") && !settings.endpoint.starts_with("https://")) {
    return invalid_argument("HF_ENDPOINT: expected a URL of http or https, got '{}'",
                            printable(settings.endpoint));
  }
  KAKEYA_ASSIGN_OR_RETURN(settings.token, hub_token(environment));
  for (const ModelPlace& place : model_places(environment)) {
    if (place.kind == PlaceKind::kHuggingFace) settings.cache = place.folder;
  }
  if (settings.cache.empty()) {
    return invalid_argument("expected HOME, HF_HOME or HF_HUB_CACHE to say where models are kept");
  }
  return settings;
}

Result<HubSettings> hub_settings() {
  return hub_settings([](const std::string& name) -> std::string {
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? "" : value;
  });
}

}  // namespace kakeya::cli
