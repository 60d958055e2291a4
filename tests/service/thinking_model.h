// The demo model with the tokens of a model that thinks as Qwen3 does: its channels' markers are
// <think> and </think>, which are not special, and its turns' are <|im_start|> and <|im_end|>.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "kakeya/engine.h"
#include "runtime/demo_sessions.h"

namespace kakeya::test {

// Its tokenizer.json.
inline std::string thinking_tokenizer() {
  constexpr std::pair<const char*, const char*> kNames[] = {{"<|channel>", "<think>"},
                                                            {"<channel|>", "</think>"},
                                                            {"<|turn>", "<|im_start|>"},
                                                            {"<turn|>", "<|im_end|>"}};
  std::ifstream file(KAKEYA_DEMO_MODEL "/tokenizer.json");
  auto json = nlohmann::ordered_json::parse(file);
  auto& vocabulary = json["model"]["vocab"];
  for (const auto& [name, qwen_name] : kNames) {
    const int id = vocabulary[name];
    vocabulary.erase(name);
    vocabulary[qwen_name] = id;
    for (auto& token : json["added_tokens"]) {
      if (token["content"] != name) continue;
      token["content"] = qwen_name;
      token["special"] = std::string(qwen_name).find("think") == std::string::npos;
    }
  }
  return json.dump();
}

// Opens it with a published chat template of tests/data.
inline std::shared_ptr<Engine> open_thinking_engine(const std::string& chat_template) {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::path(testing::TempDir()) / ("kakeya_thinking_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  for (const auto& file : fs::directory_iterator(KAKEYA_DEMO_MODEL)) {
    const fs::path link = folder / file.path().filename();
    if (fs::is_symlink(link) || fs::exists(link)) continue;
    if (!file.path().filename().string().starts_with("tokenizer")) {
      fs::create_symlink(fs::absolute(file.path()), link);
    }
  }
  std::ofstream(folder / "tokenizer.json") << thinking_tokenizer();
  EngineOptions options = demo_options("none");
  options.model_dir = folder.string();
  options.chat_template = std::string(KAKEYA_TEST_DATA "/chat_templates/") + chat_template;
  auto engine = open_engine(options);
  fs::remove_all(folder);
  return engine;
}

}  // namespace kakeya::test
