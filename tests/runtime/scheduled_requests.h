// Engines for tests of the scheduler, and the answers that requests must get.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kakeya/engine.h"
#include "kakeya/scheduler.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "runtime/session_modes.h"

namespace kakeya::test {

// The demo model, on two threads.
inline std::shared_ptr<Engine> open_shared_engine(const BackendChoice& choice,
                                                  const char* draft = "auto") {
  EngineOptions options = restoring_options(draft);
  options.backend = choice.name;
  return Engine::open(options).value();
}

// The tokens that a session of its own gives.
inline std::vector<TokenId> answer_alone(Engine& engine, const Request& request) {
  const auto session =
      engine.create_session(request.session.value_or(engine.session_options())).value();
  EXPECT_TRUE(session->append(request.prompt).has_value());
  return session->generate(request.generate).value().ids;
}

// At most so many steps.
inline void run_all(Scheduler& scheduler, int most = 5000) {
  for (int i = 0; i < most; ++i) {
    if (!scheduler.step().value()) return;
  }
  FAIL() << "steps do not end";
}

// Those that a request can choose.
inline std::vector<SessionMode> shared_modes() {
  std::vector<SessionMode> modes = session_modes();
  std::erase_if(modes, [](const SessionMode& mode) { return mode.comparison != Comparison(); });
  return modes;
}

}  // namespace kakeya::test
