// The rows that a session makes its networks compute: each token of a prompt once, each row of a
// block once, and of the drafter one block a round and each position of its context once.
#include <gtest/gtest.h>

#include <memory>

#include "convert/observing_backend.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "runtime/engine_impl.h"

namespace kakeya::test {
namespace {

// Rows that matrices whose names end so were multiplied with.
std::int64_t rows_of(const ObservingBackend& backend, const std::string& name) {
  for (const auto& [tensor, sums] : backend.sums()) {
    if (tensor.ends_with(name)) return sums.total_rows();
  }
  ADD_FAILURE() << "nothing is multiplied with " << name;
  return 0;
}

// With the prefix that the drafter's names do not have.
constexpr const char* kTargetLayer = "model.layers.0.self_attn.q_proj.weight";
constexpr const char* kTargetLast = "model.layers.5.self_attn.o_proj.weight";

TEST(SessionPasses, RunEachRowOnce) {
  ObservingBackend* backend = nullptr;
  const auto engine = EngineImpl::open(demo_options("auto"), [&](std::unique_ptr<Backend> inner) {
    auto observing = std::make_unique<ObservingBackend>(std::move(inner));
    backend = observing.get();
    return observing;
  });
  ASSERT_OK(engine);
  for (const std::int64_t draft_length : {0, 1, 5, 15}) {
    const std::int64_t first = rows_of(*backend, kTargetLayer);
    const std::int64_t last = rows_of(*backend, kTargetLast);
    const std::int64_t drafted = rows_of(*backend, "fc.weight");
    const auto session = (*engine)->create_session().value();
    ASSERT_OK(session->append(random_ids(150, 1)));
    GenerateOptions options = generation(40);
    options.draft_length = draft_length;
    const auto result = session->generate(options);
    ASSERT_OK(result);
    std::int64_t expected = 150;
    for (const RoundRecord& round : result->rounds) expected += round.drafted + 1;
    EXPECT_EQ(rows_of(*backend, kTargetLayer) - first, expected) << draft_length;
    EXPECT_EQ(rows_of(*backend, kTargetLast) - last, expected) << draft_length;
    EXPECT_LE(rows_of(*backend, "fc.weight") - drafted, session->position()) << draft_length;
  }
}

}  // namespace
}  // namespace kakeya::test
