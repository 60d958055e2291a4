// Operations on rows that the backend for cards runs as one kernel: whatever they are, their bits
// are those of launches by themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <type_traits>
#include <vector>

#include "backend/cuda/device/row_steps.h"
#include "backend/cuda/fuse.h"
#include "backend/cuda/launch_shapes.h"
#include "backend/cuda/row_step_plan.h"
#include "backend/emulated/emulated_driver.h"

namespace kakeya::cuda {
namespace {

constexpr std::int64_t kTestedRows = 3;
constexpr int kArrays = 10;

// Rows and weights, and operations on them that are launches by themselves.
class Operations {
 public:
  Operations(std::int64_t width, unsigned seed) : width_(width), random_(seed) {
    for (auto& array : arrays_) fill(array, kTestedRows * width);
    for (auto& weight : weights_) fill(weight, width);
    const std::int64_t steps = kTestedRows * device::num_steps(width);
    for (auto& rounded : rounded_) {
      rounded.codes.resize(static_cast<std::size_t>(steps * device::kStepColumns / 16));
      rounded.numbers.resize(static_cast<std::size_t>(steps * device::kStepNumbers / 4));
      rounded.low_sums.resize(static_cast<std::size_t>(steps * device::kStepLowSums / 2));
    }
  }

  // Adds an operation that some numbers choose.
  void add() {
    const int kind = below(9);
    if (kind == 8) {
      bias(below(2), below(kArrays));
    } else if (kind < 3) {
      norm(below(kArrays), kind == 0 ? -1 : below(2), below(kArrays), kind == 2 ? 1e-3F : 1e-6F);
    } else if (kind < 6) {
      sum(below(kArrays), below(kArrays), below(kArrays), kind == 5 ? 0.37F : 1.0F);
    } else if (kind == 6) {
      round(below(kArrays), below(2));
    } else {
      copy(below(kArrays));
    }
  }

  // Adds what a layer has between its products, in one of the forms that some numbers choose.
  void add_residual_steps() {
    const float eps = 1e-6F;
    const bool has_second = below(2) == 0;
    const int normed = has_second || below(4) > 0 ? below(2) * 3 : -1;  // in place, or not
    if (normed >= 0) norm(0, below(3) - 1, normed, eps);
    int term = normed < 0 ? 0 : normed;
    if (has_second) {
      norm(1, below(3) - 1, 1, eps);
      sum(normed, 1, 4, 1.0F);
      norm(4, below(3) - 1, 5, eps);
      term = 5;
    }
    const bool in_place = below(2) == 0;
    const int out = in_place ? 2 : 6;
    sum(term, 2, out, below(2) == 0 ? 1.0F : 0.37F);
    if (below(3) == 0) copy(out);
    const int norms = below(4);
    for (int k = 0; k < norms; ++k) {
      norm(out, below(3) - 1, 7 + k, eps);
      if (below(2) == 0) round(7 + k, k % 2);
    }
  }

  // The bits of everything behind the launches.
  std::vector<std::uint32_t> run(const LaunchList& launches) {
    auto driver = create_emulated_driver({.seed = 7, .allows_host_memory = true}).value();
    const auto before = arrays_;
    const Status ran = driver->launch(launches);
    EXPECT_TRUE(ran) << ran.error().message();
    std::vector<std::uint32_t> bits;
    // And forgets them, so that the next launches have to make them again.
    const auto append = [&](auto& units) {
      const auto* const words = reinterpret_cast<const std::uint32_t*>(units.data());
      bits.insert(bits.end(), words, words + units.size() * sizeof(units[0]) / sizeof(*words));
      std::fill(units.begin(), units.end(), std::decay_t<decltype(units[0])>{});
    };
    for (auto& array : arrays_) append(array);
    append(copied_);
    for (auto& rounded : rounded_) {
      append(rounded.codes);
      append(rounded.numbers);
      append(rounded.low_sums);
    }
    arrays_ = before;
    return bits;
  }

  const LaunchList& list() const { return list_; }

 private:
  // Units of 16 bytes, so that they begin at multiples of them.
  using Floats = std::vector<device::FourFloats>;
  struct Rounded {
    std::vector<device::FourWords> codes;
    Floats numbers;
    std::vector<device::TwoFloats> low_sums;
  };

  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  void fill(Floats& values, std::int64_t count) {
    std::normal_distribution<float> normal;
    values.resize(static_cast<std::size_t>(count / 4));
    for (auto& four : values) {
      for (float& x : four.at) x = normal(random_);
    }
  }
  static float* data(Floats& values) { return values.data()->at; }

  void norm(int from, int weight, int to, float eps) {
    const device::NormParams p = {data(arrays_[static_cast<std::size_t>(from)]),
                                  weight < 0 ? nullptr : data(weights_[weight]),
                                  eps,
                                  kTestedRows,
                                  width_,
                                  data(arrays_[static_cast<std::size_t>(to)])};
    list_.add(Kernel::rms_norm,
              {kTestedRows, 1, device::kNormSegments * dev::kWarp, device::kNormSegments}, &p);
  }
  void sum(int a, int b, int to, float scale) {
    const device::AddParams p = {data(arrays_[static_cast<std::size_t>(a)]),
                                 data(arrays_[static_cast<std::size_t>(b)]), scale,
                                 kTestedRows * width_, data(arrays_[static_cast<std::size_t>(to)])};
    list_.add(Kernel::add, element_shape(kTestedRows * width_, 1), &p);
  }
  void bias(int weight, int to) {
    const device::AddVectorParams p = {data(arrays_[static_cast<std::size_t>(to)]),
                                       data(weights_[weight]), kTestedRows, width_};
    list_.add(Kernel::add_vector, element_shape(width_, kTestedRows), &p);
  }
  void round(int from, int to) {
    Rounded& rounded = rounded_[to];
    const device::RoundParams p = {data(arrays_[static_cast<std::size_t>(from)]),
                                   kTestedRows,
                                   width_,
                                   reinterpret_cast<std::int8_t*>(rounded.codes.data()),
                                   data(rounded.numbers),
                                   rounded.low_sums.data()->at};
    list_.add(Kernel::round_rows, warp_shape(ceil_div(width_, device::kGroupColumns), kTestedRows),
              &p);
  }
  void copy(int from) {
    copied_.resize(static_cast<std::size_t>(kTestedRows * width_ / 2));
    const device::CopyColumnsParams p = {data(arrays_[static_cast<std::size_t>(from)]),
                                         kTestedRows,
                                         width_,
                                         data(copied_),
                                         2 * width_,
                                         width_};
    list_.add(Kernel::copy_columns, element_shape(width_, kTestedRows), &p);
  }

  const std::int64_t width_;
  std::mt19937 random_;
  std::array<Floats, kArrays> arrays_;
  Floats weights_[2];
  Floats copied_;  // twice as wide
  Rounded rounded_[2];
  LaunchList list_;
};

// Widths whose segments are whole runs, or are not, and of an odd number of runs.
TEST(CudaRowSteps, GiveTheBitsOfOperationsByThemselves) {
  int fused_ones = 0;
  for (const std::int64_t width : {std::int64_t{32}, std::int64_t{96}, std::int64_t{256},
                                   std::int64_t{1056}, std::int64_t{2816}}) {
    for (unsigned seed = 0; seed < (width > 1000 ? 6 : 20); ++seed) {
      Operations operations(width, seed);
      for (unsigned i = 0; i < 2 + seed % 9; ++i) operations.add();
      const std::vector<std::uint32_t> expected = operations.run(operations.list());
      const LaunchList fused = fuse(operations.list(), kTestedRows).launches;
      for (std::size_t i = 0; i < fused.size(); ++i) {
        fused_ones += fused.kernel(i) == Kernel::row_steps ? 1 : 0;
      }
      EXPECT_EQ(operations.run(fused), expected) << width << " columns, seed " << seed;
    }
  }
  EXPECT_GT(fused_ones, 50);
}

// As wide as all columns that threads can have, narrower, and of segments that are no whole runs.
TEST(CudaRowSteps, BetweenProductsGiveTheBitsOfOperationsByThemselves) {
  int special_ones = 0;
  for (const std::int64_t width : {std::int64_t{96}, std::int64_t{256}, std::int64_t{1280},
                                   std::int64_t{2816}, std::int64_t{2880}}) {
    for (unsigned seed = 0; seed < 16; ++seed) {
      Operations operations(width, 100 + seed);
      operations.add_residual_steps();
      const std::vector<std::uint32_t> expected = operations.run(operations.list());
      const LaunchList fused = fuse(operations.list(), kTestedRows).launches;
      for (std::size_t i = 0; i < fused.size(); ++i) {
        special_ones += fused.kernel(i) == Kernel::residual_steps ? 1 : 0;
      }
      EXPECT_EQ(operations.run(fused), expected) << width << " columns, seed " << seed;
    }
  }
  EXPECT_GT(special_ones, 40);
}

// A layer's steps behind the experts, as wide as the 26B-A4B: eight places have to do.
TEST(CudaRowSteps, PutRowsWhereNobodyReadsAnyMore) {
  alignas(16) static float row[9][4];
  const auto norm = [](int from, int weight, int to) {
    RowOperation made = {};
    made.step.kind = device::RowStepKind::kNorm;
    made.step.number = 1e-6F;
    made.step.out = row[to];
    made.a = row[from];
    made.b = row[weight];
    return made;
  };
  const auto sum = [](int a, int b, int to) {
    RowOperation made = {};
    made.step.kind = device::RowStepKind::kAdd;
    made.step.number = 1.0F;
    made.step.out = row[to];
    made.a = row[a];
    made.b = row[b];
    return made;
  };
  const std::vector<RowOperation> steps = {norm(0, 4, 0), norm(1, 5, 1), sum(0, 1, 0),
                                           norm(0, 6, 0), sum(2, 0, 2),  norm(2, 7, 3)};
  const auto plan = plan_row_steps(steps, 2, 2816);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->params.num_weights, 4);
  EXPECT_EQ(plan->params.num_brought, 7);
  EXPECT_EQ(plan->shape.shared_words, static_cast<std::uint32_t>(device::row_step_words(7, 2816)));
  EXPECT_FALSE(plan_row_steps(steps, 2, 8192).has_value());
  // The norm of a row that the last one was of.
  const auto twice = plan_row_steps(std::vector{norm(0, 4, 1), norm(0, 5, 2)}, 2, 64);
  EXPECT_TRUE(twice->params.steps[1].keeps_factor);
  const auto changed = plan_row_steps(std::vector{norm(0, 4, 0), norm(0, 5, 2)}, 2, 64);
  EXPECT_FALSE(changed->params.steps[1].keeps_factor);
  // Copies are of 16 bytes.
  std::vector<RowOperation> shifted = steps;
  shifted[0].a = row[0] + 1;
  EXPECT_FALSE(plan_row_steps(shifted, 2, 2816).has_value());
}

}  // namespace
}  // namespace kakeya::cuda
