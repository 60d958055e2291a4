// A fixture for tests of sessions: one engine of the demo model, with its drafter, for all tests of
// a suite.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "runtime/demo_sessions.h"
#include "runtime/engine_impl.h"

namespace kakeya::test {

class DemoEngineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto engine = EngineImpl::open(demo_options("auto"));
    ASSERT_TRUE(engine.has_value()) << engine.error().message();
    engine_ = std::move(engine).value();
  }
  static void TearDownTestSuite() { engine_.reset(); }

  // Null between suites.
  static inline std::unique_ptr<EngineImpl> engine_;
};

}  // namespace kakeya::test
