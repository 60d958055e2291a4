// Requests of the scheduler, made of what a client wishes.
#include "service/answer_request.h"

#include <gtest/gtest.h>

#include <limits>

#include "runtime/demo_sessions.h"

namespace kakeya::service {
namespace {

TEST(AnswerRequest, ShareOfZeroKeepsTheLikeliestToken) {
  const auto engine = test::open_engine(test::demo_options("none"));
  const auto top_p_of = [&](float wish) {
    AnswerRequest answer;
    answer.prompts = {{.ids = {2, 131}}};
    answer.sampling.top_p = wish;
    return make_requests(*engine, answer, 0)->front().generate.sampling.top_p;
  };
  EXPECT_EQ(top_p_of(0.0F), std::numeric_limits<float>::min());
  EXPECT_EQ(top_p_of(-0.0F), std::numeric_limits<float>::min());
  EXPECT_EQ(top_p_of(0.25F), 0.25F);
  EXPECT_EQ(top_p_of(1.0F), 1.0F);
}

}  // namespace
}  // namespace kakeya::service
