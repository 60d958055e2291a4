// Engines of the demo model for tests of sessions, and what such a test compares: the tokens of a
// generation with what was accepted in each of its rounds.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kakeya/engine.h"

namespace kakeya::test {

using Ids = std::vector<TokenId>;

inline Ids joined(std::initializer_list<Ids> parts) {
  Ids all;
  for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// The demo model has windows of 128: with 64 rows in a chunk its rings hold 191 rows.
inline EngineOptions demo_options(const std::string& draft) {
  return {.model_dir = KAKEYA_DEMO_MODEL,
          .num_threads = 2,
          .pin_threads = false,
          .session = {.context = 1024, .max_rows = 64},
          .draft = {.source = draft}};
}

// Options of an engine whose sessions can restore evicted rows.
inline EngineOptions restoring_options(const std::string& draft) {
  EngineOptions options = demo_options(draft);
  options.projection = KAKEYA_DEMO_MODEL "/projections/context";
  return options;
}

// A test failure and nullptr on an error.
inline std::shared_ptr<Engine> open_engine(const EngineOptions& options) {
  auto engine = Engine::open(options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  return engine ? std::move(engine).value() : nullptr;
}

inline GenerateOptions generation(std::int64_t max_tokens, float temperature = 1.0F) {
  return {.max_tokens = max_tokens,
          .sampling = {.temperature = temperature, .top_p = 0.95F, .seed = 3},
          .draft_length = 5,
          .ignore_model_stop_ids = true};
}

// The tokens of a run; those accepted in each round show what the drafter's context held.
struct Stream {
  Ids ids;
  std::vector<std::int32_t> accepted;

  bool operator==(const Stream&) const = default;
};

// A test failure and nothing on an error.
inline Stream go_on(Session& session, const GenerateOptions& options) {
  const auto result = session.generate(options);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  Stream stream;
  if (!result) return stream;
  stream.ids = result->ids;
  for (const RoundRecord& round : result->rounds) stream.accepted.push_back(round.accepted);
  return stream;
}

}  // namespace kakeya::test
