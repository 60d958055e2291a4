// The fate of drafts on a backend that gives a row other bits among others than alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/forwarding_backend.h"
#include "backend/forwarding_executor.h"
#include "model/test_model.h"
#include "runtime/engine_impl.h"

namespace kakeya::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Products of more than `exact` rows have another last bit, from a position on and in all rows from
// number `first` on.
class InexactExecutor final : public ForwardingExecutor<InexactExecutor> {
 public:
  InexactExecutor(std::unique_ptr<Executor> inner,
                  std::int64_t exact,
                  Position from,
                  std::int64_t first)
      : ForwardingExecutor(std::move(inner)), exact_(exact), from_(from), first_(first) {}
  void matmul(ConstRows x, const Matrix& w, Rows out) override {
    ForwardingExecutor::matmul(x, w, out);
    if (x.count <= exact_ || batch().positions.front() < from_) return;
    float* const values = out.data.address();
    for (std::int64_t i = first_ * out.width; i < out.count * out.width; ++i) {
      values[i] = std::nextafter(values[i], 1e9F);
    }
  }

 private:
  std::int64_t exact_;
  Position from_;
  std::int64_t first_;
};

class InexactBackend final : public ForwardingBackend {
 public:
  InexactBackend(std::unique_ptr<Backend> inner,
                 std::int64_t exact,
                 Position from,
                 std::int64_t first)
      : ForwardingBackend(std::move(inner)), exact_(exact), from_(from), first_(first) {}
  std::string_view name() const override { return "inexact"; }
  bool is_row_invariant() const override { return false; }
  Result<std::unique_ptr<Executor>> create_executor(const ExecutorPlan& plan,
                                                    MemoryBudget& budget) override {
    auto made = inner().create_executor(plan, budget);
    if (!made) return made;
    return std::make_unique<InexactExecutor>(std::move(made).value(), exact_, from_, first_);
  }

 private:
  std::int64_t exact_;
  Position from_;
  std::int64_t first_;
};

class ExactRows : public testing::Test {
 protected:
  Result<std::unique_ptr<EngineImpl>> open(std::int64_t exact,
                                           const DraftOptions& draft = {},
                                           Position from = 0,
                                           std::int64_t context = 256,
                                           std::int64_t first = 0) {
    notes_.clear();
    return EngineImpl::open(
        {.model_dir = KAKEYA_DEMO_MODEL,
         .session = {.context = context},
         .draft = draft,
         .on_note = [this](const std::string& note) { notes_.push_back(note); }},
        [exact, from, first](std::unique_ptr<Backend> inner) {
          return std::make_unique<InexactBackend>(std::move(inner), exact, from, first);
        });
  }
  // The longest block that it drafted.
  static std::int64_t most_drafted(EngineImpl& engine) {
    const auto session = engine.create_session().value();
    EXPECT_TRUE(session->append(std::vector<TokenId>{2, 105, 3833, 17, 105}).has_value());
    const auto result =
        session->generate({.max_tokens = 24, .draft_length = 15, .ignore_model_stop_ids = true});
    EXPECT_TRUE(result.has_value());
    std::int64_t most = 0;
    for (const RoundRecord& round : result->rounds)
      most = std::max<std::int64_t>(most, round.drafted);
    return most;
  }

  std::vector<std::string> notes_;
};

TEST_F(ExactRows, BlocksHaveNoMoreThanWereFoundExact) {
  const auto engine = open(5);
  ASSERT_OK(engine);
  EXPECT_THAT(notes_, testing::ElementsAre(
                          "backend inexact was found to keep the bits of blocks of up to 5 rows of "
                          "this model: at most 4 tokens are drafted at a time"));
  EXPECT_EQ(most_drafted(**engine), 4);
}

// The first row of a block is the one that kernels most easily get right.
TEST_F(ExactRows, EveryRowOfABlockCounts) {
  for (const std::int64_t first : {1, 3, 4}) {
    ASSERT_OK(open(4, {}, 0, 256, first));
    EXPECT_THAT(notes_, testing::ElementsAre(HasSubstr("blocks of up to 4 rows"))) << first;
  }
}

TEST_F(ExactRows, ThoseOfALongContextCountWhereSessionsReachIt) {
  ASSERT_OK(open(3, {}, 1024, 256));
  EXPECT_THAT(notes_, testing::ElementsAre(HasSubstr("blocks of up to 8 rows")));
  ASSERT_OK(open(3, {}, 1024, 2048));
  EXPECT_THAT(notes_, testing::ElementsAre(HasSubstr("blocks of up to 3 rows")));
}

TEST_F(ExactRows, NothingIsDraftedWhereNoneAre) {
  const auto engine = open(1);
  ASSERT_OK(engine);
  ASSERT_EQ(notes_.size(), 1U);
  EXPECT_THAT(notes_[0], StartsWith("backend inexact gives a row of this model other bits"));
  EXPECT_EQ(most_drafted(**engine), 0);
}

TEST_F(ExactRows, DraftsThatAreAskedForAreRefusedByName) {
  for (const char* source : {"ngram", KAKEYA_DEMO_MODEL "/drafter"}) {
    const auto engine = open(1, {.source = source});
    ASSERT_FALSE(engine.has_value());
    EXPECT_EQ(engine.error().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(engine.error().message(), HasSubstr("DraftOptions::allow_inexact"));
  }
  const auto engine = open(1, {.allow_inexact = true});
  ASSERT_OK(engine);
  EXPECT_TRUE(notes_.empty());
  EXPECT_EQ(most_drafted(**engine), 15);
}

TEST_F(ExactRows, NobodyAsksWhereNothingDrafts) {
  const auto engine = open(1, {.source = "none"});
  ASSERT_OK(engine);
  EXPECT_TRUE(notes_.empty());
}

}  // namespace
}  // namespace kakeya::test
