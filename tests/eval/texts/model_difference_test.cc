// The outputs of two models side by side.
#include "eval/texts/model_difference.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/test_model.h"

namespace kakeya::eval {
namespace {

std::unique_ptr<EngineImpl> open(const std::string& dir, Compute compute) {
  return EngineImpl::open({.model_dir = dir,
                           .compute = compute,
                           .num_threads = 1,
                           .pin_threads = false,
                           .draft = {.source = "none"}})
      .value();
}

// One window is longer than a pass, one is the shortest there can be.
std::vector<std::vector<TokenId>> windows() {
  return {test::random_ids(300, 1), test::random_ids(2, 2), test::random_ids(128, 3)};
}

TEST(ModelDifference, AModelIsNoFurtherFromItselfThanNothing) {
  const auto a = open(KAKEYA_DEMO_MODEL, Compute::kFast);
  const auto b = open(KAKEYA_DEMO_MODEL, Compute::kFast);
  std::uint64_t last = 0;
  const auto statistics =
      compare_models(*a, *b, windows(), [&](std::uint64_t done, std::uint64_t total) -> Status {
        EXPECT_GT(done, last);
        EXPECT_EQ(total, 430U);
        last = done;
        return {};
      });
  ASSERT_TRUE(statistics.has_value()) << statistics.error().message();
  EXPECT_EQ(last, 430U);
  EXPECT_EQ(statistics->positions(), 299 + 1 + 127);
  EXPECT_EQ(statistics->mean_divergence(), 0.0);
  EXPECT_EQ(statistics->top_agreement(), 1.0);
  EXPECT_EQ(statistics->perplexity(), statistics->reference_perplexity());
}

TEST(ModelDifference, AgreesWithLogitsThatWereComparedByHand) {
  const auto a = open(KAKEYA_DEMO_MODEL, Compute::kFast);
  const auto b = open(KAKEYA_DEMO_MODEL, Compute::kF32);
  DistributionStatistics expected;
  for (const auto& ids : windows()) {
    const auto count = std::ssize(ids);
    const auto logits = [&](EngineImpl& engine) {
      std::vector<float> rows(static_cast<std::size_t>(count * engine.vocab_size()));
      const auto timeline =
          engine.create_timeline({.context = count, .max_rows = count}, 1).value();
      EXPECT_TRUE(timeline->forward(ids, {.logits = {rows.data(), count, engine.vocab_size()}})
                      .has_value());
      return rows;
    };
    const std::vector<float> from_a = logits(*a);
    const std::vector<float> from_b = logits(*b);
    const auto width = static_cast<std::size_t>(a->vocab_size());
    DistributionStatistics window;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      window.add(compare_logits(std::span(from_a).subspan(i * width, width),
                                std::span(from_b).subspan(i * width, width), ids[i + 1]));
    }
    expected.add(window);
  }
  const auto statistics = compare_models(*a, *b, windows(), {});
  ASSERT_TRUE(statistics.has_value()) << statistics.error().message();
  EXPECT_GT(statistics->mean_divergence(), 0.0);
  EXPECT_EQ(statistics->mean_divergence(), expected.mean_divergence());
  EXPECT_EQ(statistics->reference_perplexity(), expected.reference_perplexity());
  EXPECT_EQ(statistics->perplexity(), expected.perplexity());
}

TEST(ModelDifference, RefusesOtherVocabulariesAndEndsWhenItIsToldTo) {
  const auto demo = open(KAKEYA_DEMO_MODEL, Compute::kFast);
  const auto small = open(std::string(KAKEYA_TEST_DATA) + "/networks/qwen3-tied", Compute::kFast);
  EXPECT_EQ(compare_models(*demo, *small, windows(), {}).error().code(),
            StatusCode::kInvalidArgument);
  const auto stopped =
      compare_models(*demo, *demo, windows(), [](std::uint64_t, std::uint64_t) -> Status {
        return error(StatusCode::kCancelled, "enough");
      });
  EXPECT_EQ(stopped.error().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace kakeya::eval
