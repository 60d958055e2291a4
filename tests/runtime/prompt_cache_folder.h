// Engines of the demo model whose prompt cache has a folder, and what tests of it ask them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "formats/scratch_files.h"
#include "kakeya/engine.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "runtime/engine_impl.h"

namespace kakeya::test {

class PromptCacheFolder : public testing::Test {
 protected:
  std::string dir() const { return folder_.path("cache"); }

  std::shared_ptr<EngineImpl> open(const std::string& draft = "auto",
                                   std::uint64_t bytes = std::uint64_t{1} << 30,
                                   std::uint64_t dir_bytes = std::uint64_t{1} << 30) {
    EngineOptions options = demo_options(draft);
    options.prompt_cache_bytes = bytes;
    return open_in_folder(options, dir_bytes);
  }

  std::shared_ptr<EngineImpl> open_in_folder(EngineOptions options, std::uint64_t dir_bytes) {
    options.prompt_cache_dir = dir();
    options.prompt_cache_dir_bytes = dir_bytes;
    options.on_note = [this](const std::string& note) {
      const std::lock_guard lock(mutex_);
      notes_.push_back(note);
    };
    auto engine = EngineImpl::open(options);
    EXPECT_TRUE(engine.has_value()) << engine.error().message();
    return engine ? std::shared_ptr<EngineImpl>(std::move(*engine)) : nullptr;
  }

  std::vector<std::string> files() const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(dir())) {
      if (entry.path().extension() == ".prefix") paths.push_back(entry.path());
    }
    return paths;
  }

  std::vector<std::string> notes() {
    const std::lock_guard lock(mutex_);
    return notes_;
  }

 private:
  ScratchFolder folder_;
  std::mutex mutex_;
  std::vector<std::string> notes_;
};

struct DiskAnswer {
  Stream stream;
  Ids text;
  std::int64_t kept = 0;
};

inline DiskAnswer answer_of(Engine& engine, const Ids& prompt, const SessionOptions& options) {
  const auto session = engine.create_session(options).value();
  DiskAnswer answer;
  answer.kept = session->sync(prompt).value();
  answer.stream = go_on(*session, generation(20));
  answer.text = {session->tokens().begin(), session->tokens().end()};
  return answer;
}

inline DiskAnswer answer_of(Engine& engine, const Ids& prompt) {
  return answer_of(engine, prompt, engine.session_options());
}

inline void forget_memory(const EngineImpl& engine) {
  while (engine.prompt_cache()->bytes() > 0) ASSERT_TRUE(engine.prompt_cache()->reclaim(1));
}

inline PromptCacheStatistics flushed(const EngineImpl& engine) {
  engine.prompt_cache()->flush_files();
  return engine.prompt_cache_statistics();
}

}  // namespace kakeya::test
