// Costs of all sizes from samples of some, disturbed or not.
#include "decode/round_costs.h"

#include <gtest/gtest.h>

namespace kakeya::test {
namespace {

TEST(RoundCosts, InterpolatesBetweenMeasuredSizes) {
  std::vector<std::vector<double>> samples = {{1.0}, {2.0}, {4.0}};
  EXPECT_EQ(costs_of_samples({1, 2, 4}, samples, 4), (std::vector<double>{1.0, 2.0, 3.0, 4.0}));
}

TEST(RoundCosts, HeedsFastSamplesMoreThanDisturbedOnes) {
  std::vector<std::vector<double>> samples = {{9.0, 1.0, 8.0, 1.1, 7.0}, {2.0, 2.1, 9.0, 2.2, 2.3}};
  EXPECT_EQ(costs_of_samples({1, 2}, samples, 2), (std::vector<double>{1.1, 2.1}));
}

// A plateau over small sizes is what other work on the machine leaves, and held drafting for free.
TEST(RoundCosts, LowersASizeThatALargerOneUndercuts) {
  std::vector<std::vector<double>> samples = {{5.0}, {5.0}, {3.0}, {4.0}};
  EXPECT_EQ(costs_of_samples({1, 2, 3, 4}, samples, 4), (std::vector<double>{3.0, 3.0, 3.0, 4.0}));
}

}  // namespace
}  // namespace kakeya::test
