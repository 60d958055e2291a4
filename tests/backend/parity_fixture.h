// A backend beside the reference, and how near its results must be.
#pragma once

#include <string>
#include <vector>

#include "backend/backend_fixture.h"

namespace kakeya {

class OpParity : public testing::TestWithParam<Configuration> {
 protected:
  Machine ref_{Configuration{}};
  Machine cpu_{GetParam()};
};

// With one tolerance, or one for each element.
inline void expect_near(const std::vector<float>& got,
                        const std::vector<float>& expected,
                        const std::vector<float>& tolerance,
                        const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], tolerance[tolerance.size() == 1 ? 0 : i])
        << what << " element " << i;
  }
}

}  // namespace kakeya
