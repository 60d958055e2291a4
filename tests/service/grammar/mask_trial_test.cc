#include "service/grammar/mask_trial.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>

#include "base/clock.h"
#include "kakeya/constraint.h"

namespace kakeya::service {
namespace {

// Allows everything by a mask, and works for a while at each of the first `slow` masks.
class Working final : public Constraint {
 public:
  Working(double seconds, int slow) : seconds_(seconds), slow_(slow) {}

  bool fill_mask(std::span<std::uint32_t> mask) override {
    const ThreadTime time;
    while (slow_ > 0 && time.seconds() < seconds_) {
    }
    --slow_;
    for (std::uint32_t& word : mask) word = ~0U;
    return true;
  }
  bool advance(TokenId) override { return true; }
  void roll_back(std::int64_t) override {}

 private:
  double seconds_;
  int slow_;
};

Status tried(double seconds, int slow, std::int64_t vocab_size) {
  return try_masks([&] { return std::make_unique<Working>(seconds, slow); }, vocab_size);
}

TEST(MaskTrial, RefusesMasksThatAlwaysTakeLong) {
  const Status status = tried(0.025, 1'000, 4'096);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.error().message().find("at most 20 ms"), std::string::npos);
}

// As caches are filled, or the machine is busy.
TEST(MaskTrial, TakesMasksThatTookLongOnce) {
  EXPECT_TRUE(tried(0.025, 1, 4'096));
  EXPECT_TRUE(tried(0.025, 2, 4'096));
}

// A mask of 13 ms is what a string of at most 20 characters takes with 49,152 tokens.
TEST(MaskTrial, AllowsTimeForLargeVocabularies) {
  EXPECT_TRUE(tried(0.025, 1'000, 49'152));
  EXPECT_FALSE(tried(0.06, 1'000, 49'152));
}

}  // namespace
}  // namespace kakeya::service
