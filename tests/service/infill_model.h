// The demo model with tokens named as a model of code has them.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "base/temporary_folder.h"
#include "runtime/demo_sessions.h"

namespace kakeya::test {

class InfillModel {
 public:
  InfillModel() {
    for (const auto& file : std::filesystem::directory_iterator(KAKEYA_DEMO_MODEL)) {
      const auto name = file.path().filename();
      if (name != "tokenizer.json") {
        std::filesystem::create_symlink(std::filesystem::absolute(file.path()),
                                        std::filesystem::path(folder_.path()) / name);
      }
    }
    std::string text =
        (std::stringstream() << std::ifstream(KAKEYA_DEMO_MODEL "/tokenizer.json").rdbuf()).str();
    const std::pair<std::string, std::string> names[] = {
        {"<|tool>", "<|fim_prefix|>"},         {"<tool|>", "<|fim_suffix|>"},
        {"<|tool_call>", "<|fim_middle|>"},    {"<tool_call|>", "<|file_separator|>"},
        {"<|tool_response>", "<|repo_name|>"}, {"<tool_response|>", "<|file_sep|>"}};
    for (const auto& [from, to] : names) {
      const std::string quoted = '"' + from + '"';
      for (std::size_t at = 0; (at = text.find(quoted, at)) != std::string::npos;) {
        text.replace(at, quoted.size(), '"' + to + '"');
      }
    }
    std::ofstream(folder_.path() + "/tokenizer.json") << text;
  }

  std::shared_ptr<Engine> open() const {
    EngineOptions options = demo_options("none");
    options.model_dir = folder_.path();
    options.session.grow = true;
    options.prompt_cache_bytes = EngineOptions::kAutoPromptCache;
    return open_engine(options);
  }

 private:
  TemporaryFolder folder_ = TemporaryFolder::create().value();
};

}  // namespace kakeya::test
