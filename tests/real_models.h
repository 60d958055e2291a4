// The published models that tests of real weights read. They are not part of the repository: a test
// that finds none is skipped with the line that gets them.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

namespace kakeya {

// A published file, and the name by which tools/fetch_model knows it.
struct RealModel {
  const char* name;
  const char* file;
};

// How GoogleTest names a parameter.
inline void PrintTo(const RealModel& model, std::ostream* out) {
  *out << model.name;
}

inline constexpr RealModel kRealSmolLm2 = {"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"};
inline constexpr RealModel kRealGemma3 = {"gemma3-270m", "gemma-3-270m.Q4_K_M.gguf"};

// The path of the model's file, in the folder that KAKEYA_MODELS names or in build/models.
inline std::string real_model_path(const RealModel& model) {
  const char* const folder = std::getenv("KAKEYA_MODELS");
  return std::string(folder != nullptr ? folder : KAKEYA_SOURCE_DIR "/build/models") + "/" +
         model.file;
}

inline bool has_real_model(const RealModel& model) {
  return std::filesystem::exists(real_model_path(model));
}

// The answers of two references about a model: tests/data/real/FILE.
inline nlohmann::json real_golden(const std::string& file) {
  return nlohmann::json::parse(std::ifstream(KAKEYA_TEST_DATA "/real/" + file));
}

}  // namespace kakeya

// Skips the test that it stands in, unless the model is there.
#define KAKEYA_NEED_REAL_MODEL(model)                                                    \
  if (!has_real_model(model)) {                                                          \
    GTEST_SKIP() << (model).file << " is not there: tools/fetch_model " << (model).name; \
  }
