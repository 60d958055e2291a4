// The folders in which programs of this machine keep the models that they have brought.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace kakeya::cli {

enum class PlaceKind : std::uint8_t { kHuggingFace, kLlamaCpp, kLmStudio, kOllama };

// "Hugging Face", "llama.cpp", "LM Studio", "Ollama"
std::string_view place_name(PlaceKind kind);

struct ModelPlace {
  PlaceKind kind = PlaceKind::kHuggingFace;
  std::string folder;
};

// The value of a variable of the environment; empty if it is not set.
using Environment = std::function<std::string(const std::string& name)>;

// The places, whether they are there or not, as each program finds its own: HF_HUB_CACHE, HF_HOME,
// LLAMA_CACHE, OLLAMA_MODELS, XDG_CACHE_HOME, HOME.
std::vector<ModelPlace> model_places(const Environment& environment);
// Those of this process.
std::vector<ModelPlace> model_places();

}  // namespace kakeya::cli
