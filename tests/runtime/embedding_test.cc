// Vectors of texts against the published implementations' hidden states, and against themselves.
#include "kakeya/embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "formats/model_config.h"
#include "formats/safetensors.h"
#include "kakeya/engine.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"

namespace kakeya::test {
namespace {

using testing::HasSubstr;

double length_of(const std::vector<float>& vector) {
  double squares = 0.0;
  for (const float x : vector) squares += static_cast<double>(x) * x;
  return std::sqrt(squares);
}

struct GoldenRows {
  Ids ids;
  std::vector<float> rows;  // [S, D] of the last layer after the final norm
  std::size_t width = 0;

  explicit GoldenRows(const std::string& network) {
    const auto file = SafetensorsFile::open(network_dir(network) + "/golden.safetensors").value();
    ids = golden_ids(file, "input_ids");
    const std::vector<float> all = golden_floats(file, "hidden_states");  // [L + 1, S, D]
    const auto config = load_model_config(network_dir(network)).value();
    width = static_cast<std::size_t>(config.hidden_size);
    rows.assign(all.end() - static_cast<std::ptrdiff_t>(ids.size() * width), all.end());
  }

  std::vector<float> last() const {
    return {rows.end() - static_cast<std::ptrdiff_t>(width), rows.end()};
  }
  std::vector<float> mean() const {
    std::vector<float> result(width);
    for (std::size_t i = 0; i < rows.size(); ++i) result[i % width] += rows[i];
    for (float& x : result) x /= static_cast<float>(ids.size());
    return result;
  }
  double rms() const { return length_of(rows) / std::sqrt(static_cast<double>(rows.size())); }
};

TEST(Embedding, IsThePublishedHiddenStateAfterTheFinalNorm) {
  for (const char* network : {"gemma4-dense", "gemma4-e", "qwen3-tied"}) {
    const GoldenRows golden(network);
    for (const char* backend : {"ref", "cpu"}) {
      EngineOptions options = {.model_dir = network_dir(network),
                               .backend = backend,
                               .compute = Compute::kF32,
                               .num_threads = 1};
      options.draft.source = "none";
      const auto engine = open_engine(options);
      const auto embed = [&](Pooling pooling) {
        return engine->embed(golden.ids, {.pooling = pooling, .normalize = false}).value();
      };
      // As for the hidden states themselves: another order of sums in f32.
      const double tolerance = 1e-4 * golden.rms();
      EXPECT_LE(max_abs_difference(embed(Pooling::kLast), golden.last()), tolerance)
          << network << ", " << backend;
      EXPECT_LE(max_abs_difference(embed(Pooling::kMean), golden.mean()), tolerance)
          << network << ", " << backend;
      EXPECT_GT(max_abs_difference(embed(Pooling::kMean), golden.last()), 100 * tolerance);
    }
  }
}

TEST(Embedding, DoesNotDependOnChunks) {
  const Ids ids = random_ids(300, 3);
  for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
    std::vector<float> expected;
    for (const std::int64_t max_rows : {1, 7, 64, 299, 300, 512}) {
      EngineOptions options = demo_options("none");
      options.session.max_rows = max_rows;
      const auto vector = open_engine(options)->embed(ids, {.pooling = pooling});
      ASSERT_OK(vector);
      if (expected.empty()) expected = *vector;
      EXPECT_EQ(*vector, expected) << "chunks of " << max_rows;
    }
  }
}

TEST(Embedding, IsOfLengthOneUnlessAskedOtherwise) {
  const auto engine = open_engine(demo_options("auto"));
  const Ids ids = random_ids(20, 5);
  for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
    const auto unit = engine->embed(ids, {.pooling = pooling}).value();
    const auto plain = engine->embed(ids, {.pooling = pooling, .normalize = false}).value();
    // A rounding to f32 for each element.
    EXPECT_NEAR(length_of(unit), 1.0, 1e-6);
    EXPECT_GT(std::abs(length_of(plain) - 1.0), 0.1);
    for (std::size_t i = 0; i < unit.size(); ++i) {
      EXPECT_NEAR(unit[i] * length_of(plain), plain[i], 1e-5) << i;
    }
  }
  EXPECT_EQ(std::ssize(engine->embed(ids).value()), engine->hidden_size());
}

// Nothing stays allocated, but for a workspace that may have grown.
TEST(Embedding, LeavesNoMemoryBehindAndSessionsAsTheyWere) {
  const auto engine = open_engine(demo_options("auto"));
  const auto session = engine->create_session().value();
  const auto other = engine->create_session().value();
  for (Session* s : {session.get(), other.get()}) ASSERT_OK(s->append(random_ids(50, 2)));
  ASSERT_OK(session->prefill());
  const Ids ids = random_ids(100, 9);
  const auto first = engine->embed(ids).value();
  const Footprint before = engine->footprint();
  EXPECT_EQ(engine->embed(ids).value(), first);
  EXPECT_EQ(engine->footprint().reserved, before.reserved);
  EXPECT_EQ(go_on(*session, generation(30)), go_on(*other, generation(30)));
}

TEST(Embedding, WhatCannotBeEmbeddedIsRefusedInOneLine) {
  const auto engine = open_engine(demo_options("none"));
  const auto refused = [&](const Ids& ids, const EmbeddingOptions& options,
                           const std::string& part) {
    const auto vector = engine->embed(ids, options);
    ASSERT_FALSE(vector.has_value()) << part;
    EXPECT_EQ(vector.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(vector.error().message(), HasSubstr(part));
  };
  refused({}, {}, "must have 1 to 32768 tokens for this model but has 0");
  refused(Ids(32769, 5), {}, "must have 1 to 32768 tokens for this model but has 32769");
  refused({5, -1}, {}, "token id must be 0 to 4095 but is -1 (at index 1)");
  refused({4096}, {}, "token id must be 0 to 4095 but is 4096");
  refused({5}, {.pooling = static_cast<Pooling>(7)}, "EmbeddingOptions::pooling is no way");
}

}  // namespace
}  // namespace kakeya::test
