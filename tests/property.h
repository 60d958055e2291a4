// Property tests (RapidCheck): random inputs, and of one that fails the smallest that still does.
// The seed is fixed, so that a test passes always or never; RC_PARAMS tries others:
//
//     RC_PARAMS="seed=7 max_success=100000" build/release/bin/stop_strings_test
//
// A property throws by RC_ASSERT; EXPECT would tell of every step on the way to the smallest input.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace kakeya::test {

// Tries some 2,000 inputs; standard error has the one that fails.
template <typename Property>
void expect_property(const std::string& what, Property&& property) {
  ::setenv("RC_PARAMS", "seed=1 max_success=2000", 0);
  if (!rc::check(what, std::forward<Property>(property))) ADD_FAILURE() << what << ": see above";
}

// Decisions of a random walk. Shrinking leaves some out and makes others 0: fewer steps, and the
// first of what a step may do.
class Choices {
 public:
  // At most `most` of them.
  static Choices any(int most) {
    return Choices(*rc::gen::resize(most, rc::gen::container<std::vector<std::uint32_t>>(
                                              rc::gen::inRange<std::uint32_t>(0, 1U << 16))));
  }

  bool is_empty() const { return next_ >= values_.size(); }
  // 0 ... count - 1; 0 when there is none left.
  std::uint32_t below(std::size_t count) {
    return is_empty() ? 0 : values_[next_++] % static_cast<std::uint32_t>(count);
  }

 private:
  explicit Choices(std::vector<std::uint32_t> values) : values_(std::move(values)) {}

  std::vector<std::uint32_t> values_;
  std::size_t next_ = 0;
};

}  // namespace kakeya::test
