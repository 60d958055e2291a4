#include "cli/models/model_places.h"

#include <cstdlib>

namespace kakeya::cli {

std::string_view place_name(PlaceKind kind) {
  switch (kind) {
    case PlaceKind::kHuggingFace:
      return "Hugging Face";
    case PlaceKind::kLlamaCpp:
      return "llama.cpp";
    case PlaceKind::kLmStudio:
      return "LM Studio";
    case PlaceKind::kOllama:
      return "Ollama";
  }
  return "";
}

std::vector<ModelPlace> model_places(const Environment& environment) {
  std::vector<ModelPlace> places;
  const auto add = [&](PlaceKind kind, const std::string& parent, const char* below) {
    if (!parent.empty()) places.push_back({kind, parent + below});
  };
  // Adds the place that one of the variables names; false if none is set.
  const auto named = [&](PlaceKind kind, const char* variable, const char* below = "") {
    const std::string value = environment(variable);
    add(kind, value, below);
    return !value.empty();
  };
  const std::string home = environment("HOME");
  std::string cache = environment("XDG_CACHE_HOME");
  if (cache.empty() && !home.empty()) cache = home + "/.cache";
  if (!named(PlaceKind::kHuggingFace, "HF_HUB_CACHE") &&
      !named(PlaceKind::kHuggingFace, "HF_HOME", "/hub")) {
    add(PlaceKind::kHuggingFace, cache, "/huggingface/hub");
  }
  if (!named(PlaceKind::kLlamaCpp, "LLAMA_CACHE")) {
#ifdef __APPLE__
    add(PlaceKind::kLlamaCpp, home, "/Library/Caches/llama.cpp");
#else
    add(PlaceKind::kLlamaCpp, cache, "/llama.cpp");
#endif
  }
  add(PlaceKind::kLmStudio, home, "/.lmstudio/models");
  add(PlaceKind::kLmStudio, home, "/.cache/lm-studio/models");
  if (!named(PlaceKind::kOllama, "OLLAMA_MODELS")) {
    add(PlaceKind::kOllama, home, "/.ollama/models");
  }
  return places;
}

std::vector<ModelPlace> model_places() {
  return model_places([](const std::string& name) -> std::string {
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? "" : value;
  });
}

}  // namespace kakeya::cli
