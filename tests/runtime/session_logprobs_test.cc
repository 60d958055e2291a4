// Log-probabilities are those of the model's own logits, bit for bit, however tokens were made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "kakeya/engine.h"
#include "kakeya/logprobs.h"
#include "model/test_model.h"
#include "runtime/demo_engine.h"
#include "runtime/demo_sessions.h"
#include "runtime/engine_impl.h"
#include "sampling/logprobs.h"

namespace kakeya::test {
namespace {

using testing::HasSubstr;

const Ids kShortPrompt = {2, 130, 131, 132, 133, 134, 130, 131, 132};

TEST(Logprobs, AreTheLogarithmOfTheSoftmax) {
  std::vector<float> logits(4096);
  SequenceRng random(5);
  for (float& logit : logits) logit = static_cast<float>(random.below(1000)) / 20.0F - 25.0F;
  long double sum = 0.0L;
  for (const float logit : logits) sum += std::exp(static_cast<long double>(logit));
  for (const TokenId id : {0, 17, 4095}) {
    const TokenLogprobs result = token_logprobs(logits, id, 0);
    const auto expected =
        std::log(std::exp(static_cast<long double>(logits[static_cast<std::size_t>(id)])) / sum);
    EXPECT_EQ(result.token.id, id);
    EXPECT_TRUE(result.top.empty());
    // Half a unit in the last place of numbers below 64, as f32 holds them.
    EXPECT_NEAR(result.token.logprob, static_cast<double>(expected), 0x1p-18);
  }
}

TEST(Logprobs, OfLargeLogitsDoNotOverflow) {
  const std::vector<float> logits = {3e38F, 3e38F, -3e38F};
  const TokenLogprobs result = token_logprobs(logits, 0, 3);
  EXPECT_FLOAT_EQ(result.token.logprob, -0.69314718F);
  EXPECT_EQ(result.top[2].logprob, -std::numeric_limits<float>::infinity());
}

TEST(Logprobs, TheLikeliestComeInOrderAndTiesByTheirIds) {
  const std::vector<float> logits = {1, 5, 3, 5, 2, 5, 4};
  const auto ids = [&](int top) {
    std::vector<TokenId> list;
    for (const TokenLogprob& token : token_logprobs(logits, 4, top).top) list.push_back(token.id);
    return list;
  };
  EXPECT_EQ(ids(0), (Ids{}));
  EXPECT_EQ(ids(2), (Ids{1, 3}));
  EXPECT_EQ(ids(5), (Ids{1, 3, 5, 6, 2}));
  EXPECT_EQ(ids(20), (Ids{1, 3, 5, 6, 2, 4, 0}));  // as many as there are
}

class SessionLogprobs : public DemoEngineTest {
 protected:
  // Log-probabilities of `ids` from the one at `first` on, by one pass over all of them.
  static std::vector<TokenLogprobs> reference(const Ids& ids, std::size_t first, int top) {
    const auto count = static_cast<std::int64_t>(ids.size());
    const std::int64_t width = engine_->vocab_size();
    const auto timeline =
        engine_->create_timeline({.context = count, .max_rows = count}, count).value();
    const std::vector<float> logits = run(*timeline, ids, {}, count).logits;
    std::vector<TokenLogprobs> list;
    for (std::size_t i = first; i < ids.size(); ++i) {
      const float* row = logits.data() + (static_cast<std::int64_t>(i) - 1) * width;
      list.push_back(token_logprobs({row, static_cast<std::size_t>(width)}, ids[i], top));
    }
    return list;
  }

  static GenerateOptions wanted(GenerateOptions options, int top) {
    options.logprobs = true;
    options.top_logprobs = top;
    return options;
  }

  static Ids joined(Ids ids, const Ids& more) {
    ids.insert(ids.end(), more.begin(), more.end());
    return ids;
  }
};

// Sampling takes what it likes from a copy.
TEST_F(SessionLogprobs, OfGeneratedTokensAreThoseOfTheModelsOwnLogits) {
  for (const std::int64_t draft_length : {0, 5}) {
    GenerateOptions options = wanted(generation(60), 5);
    options.draft_length = draft_length;
    options.sampling.repetition_penalty = 1.3F;
    options.sampling.logit_bias = {{140, 3.0F}};
    const auto session = engine_->create_session().value();
    ASSERT_OK(session->append(kShortPrompt));
    const auto result = session->generate(options);
    ASSERT_OK(result);
    ASSERT_EQ(result->ids.size(), 60U);
    EXPECT_EQ(result->logprobs,
              reference(joined(kShortPrompt, result->ids), kShortPrompt.size(), 5))
        << "drafts: " << draft_length;
    EXPECT_EQ(result->accepted > 0, draft_length > 0);
  }
}

TEST_F(SessionLogprobs, AreOnlyThereIfAskedForAndChangeNothing) {
  const auto plain = engine_->create_session().value();
  const auto session = engine_->create_session().value();
  ASSERT_OK(plain->append(kShortPrompt));
  ASSERT_OK(session->append(kShortPrompt));
  const std::uint64_t before = plain->footprint().total_reserved();
  const auto expected = plain->generate(generation(40));
  EXPECT_TRUE(expected->logprobs.empty());
  EXPECT_EQ(plain->footprint().total_reserved(), before);
  EXPECT_EQ(session->generate(wanted(generation(40), 0))->ids, expected->ids);
  EXPECT_GT(session->footprint().total_reserved(), before);
}

TEST_F(SessionLogprobs, ComeWithTheirTokens) {
  const auto session = engine_->create_session().value();
  ASSERT_OK(session->append(kShortPrompt));
  std::vector<TokenLogprobs> seen;
  const auto result = session->generate(wanted(generation(40), 2), [&](const TokenEvent& token) {
    seen.push_back(*token.logprobs);
    EXPECT_EQ(seen.back().token.id, token.id);
    return seen.size() < 17;
  });
  ASSERT_OK(result);
  EXPECT_EQ(result->ids.size(), 17U);
  EXPECT_EQ(result->logprobs, seen);
}

TEST_F(SessionLogprobs, OfRequestsThatSharePassesAreTheSame) {
  const auto session = engine_->create_session().value();
  ASSERT_OK(session->append(kShortPrompt));
  const GenerateOptions options = wanted(generation(30), 3);
  const auto alone = session->generate(options);
  ASSERT_OK(alone);
  const auto scheduler = engine_->create_scheduler({}).value();
  int ended = 0;
  for (const Ids& prompt : {kShortPrompt, Ids(70, 200), kShortPrompt}) {
    ASSERT_OK(scheduler->add({.prompt = prompt,
                              .generate = options,
                              .on_end = [&, prompt](RequestId, const RequestResult& result) {
                                ++ended;
                                EXPECT_EQ(result.generated.logprobs.size(), 30U);
                                if (prompt != kShortPrompt) return;
                                EXPECT_EQ(result.generated.logprobs, alone->logprobs);
                              }}));
  }
  while (scheduler->step().value()) {
  }
  EXPECT_EQ(ended, 3);
}

TEST_F(SessionLogprobs, OfGivenTokensAreThoseOfTheirLogitsHoweverTheyAreDivided) {
  const Ids ids = random_ids(300, 8);
  const auto expected = reference(ids, 1, 4);
  for (const std::int64_t max_rows : {1, 64, 300}) {
    for (const std::size_t part : {7U, 120U, 299U}) {
      const auto session = engine_->create_session({.context = 512, .max_rows = max_rows}).value();
      ASSERT_OK(session->append(std::span(ids).first(1)));
      std::vector<TokenLogprobs> got;
      for (std::size_t i = 1; i < ids.size(); i += part) {
        const auto scores =
            session->score(std::span(ids).subspan(i, std::min(part, ids.size() - i)), 4);
        ASSERT_OK(scores);
        got.insert(got.end(), scores->begin(), scores->end());
      }
      EXPECT_EQ(got, expected) << max_rows << " rows, parts of " << part;
    }
  }
}

TEST_F(SessionLogprobs, ASessionGoesOnBehindScoredTokensAsBehindOthers) {
  const Ids ids = random_ids(90, 4);
  const auto plain = engine_->create_session().value();
  const auto scored = engine_->create_session().value();
  ASSERT_OK(plain->append(joined(kShortPrompt, ids)));
  ASSERT_OK(scored->append(kShortPrompt));
  ASSERT_OK(scored->prefill());
  ASSERT_OK(scored->score(ids));
  EXPECT_EQ(scored->position(), std::ssize(kShortPrompt) + 89);  // the last one waits
  const Stream expected = go_on(*plain, generation(40));
  EXPECT_EQ(go_on(*scored, generation(40)), expected);
  // Behind a generation, whose last token is pending.
  const auto more = scored->score(kShortPrompt);
  ASSERT_OK(more);
  const std::span<const TokenId> all = scored->tokens();
  EXPECT_EQ(*more, reference({all.begin(), all.end()}, all.size() - kShortPrompt.size(), 0));
}

TEST_F(SessionLogprobs, AreTheSameWithAPromptCacheThatHasTheTokens) {
  EngineOptions options = demo_options("auto");
  options.prompt_cache_bytes = std::uint64_t{64} << 20;
  const auto engine = open_engine(options);
  const Ids ids = random_ids(200, 6);
  const auto expected = reference(ids, 150, 1);
  for (int i = 0; i < 2; ++i) {
    const auto session = engine->create_session().value();
    ASSERT_OK(session->append(std::span(ids).first(150)));
    const auto scores = session->score(std::span(ids).subspan(150), 1);
    ASSERT_OK(scores);
    EXPECT_EQ(*scores, expected);
    EXPECT_EQ(session->cached_tokens() > 0, i == 1);
  }
}

TEST_F(SessionLogprobs, WhatCannotBeScoredIsRefusedAndChangesNothing) {
  const auto session = engine_->create_session({.context = 40, .max_rows = 16}).value();
  const auto refused = [&](const Ids& ids, int top, StatusCode code, const std::string& part) {
    const auto scores = session->score(ids, top);
    ASSERT_FALSE(scores.has_value()) << part;
    EXPECT_EQ(scores.error().code(), code);
    EXPECT_THAT(scores.error().message(), HasSubstr(part));
  };
  refused(kShortPrompt, 0, StatusCode::kFailedPrecondition, "append tokens");
  ASSERT_OK(session->append(kShortPrompt));
  refused(kShortPrompt, 21, StatusCode::kInvalidArgument, "top_logprobs must be 0 to 20 but is 21");
  refused(kShortPrompt, -1, StatusCode::kInvalidArgument, "top_logprobs must be 0 to 20 but is -1");
  refused({-1}, 0, StatusCode::kInvalidArgument, "token id must be");
  refused({4096}, 0, StatusCode::kInvalidArgument, "token id must be");
  refused(Ids(32, 5), 0, StatusCode::kResourceExhausted, "SessionOptions::context");
  EXPECT_EQ(session->tokens().size(), kShortPrompt.size());
  EXPECT_EQ(session->position(), 0);
  EXPECT_TRUE(session->score({})->empty());
  ASSERT_OK(session->score(Ids(31, 5)));
  GenerateOptions options = wanted(generation(1), 21);
  EXPECT_THAT(session->generate(options).error().message(),
              HasSubstr("GenerateOptions::top_logprobs must be 0 to 20 but is 21"));
}

}  // namespace
}  // namespace kakeya::test
