#include "kakeya/session.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "kakeya/engine.h"
#include "kakeya/text_generation.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "runtime/engine_impl.h"
#include "thorough.h"

namespace kakeya::test {
namespace {

class SessionTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto engine = Engine::open(demo_options("auto"));
    ASSERT_OK(engine);
    engine_ = std::move(engine).value();
  }
  static void TearDownTestSuite() { engine_.reset(); }

  static std::unique_ptr<Session> session(std::int64_t context = 1024, std::int64_t max_rows = 64) {
    return engine_->create_session({.context = context, .max_rows = max_rows}).value();
  }

  static std::vector<TokenId> encode(std::string_view text) {
    return (*engine_->tokenizer())->encode(text).value();
  }

  // A prompt of `count` tokens of ordinary text.
  static std::vector<TokenId> prompt(std::size_t count) {
    std::vector<TokenId> ids = {2};
    const auto more = encode(" The quick brown fox counts the houses of the old town: one, two.");
    while (ids.size() < count) ids.push_back(more[ids.size() % more.size()]);
    return ids;
  }

  static GenerateOptions sampled(std::uint64_t seed, std::int64_t max_tokens = 40) {
    return {.max_tokens = max_tokens,
            .sampling = {.temperature = 1.0F, .top_k = 64, .top_p = 0.95F, .seed = seed},
            .ignore_model_stop_ids = true};
  }

  static std::shared_ptr<Engine> engine_;
};

std::shared_ptr<Engine> SessionTest::engine_;

TEST_F(SessionTest, GivesTheSameSampledTextForTheSameSeedAndAnotherForAnother) {
  std::vector<std::vector<TokenId>> outputs;
  for (const std::uint64_t seed : {1U, 1U, 2U}) {
    const auto s = session();
    ASSERT_OK(s->append(prompt(30)));
    outputs.push_back(s->generate(sampled(seed))->ids);
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_NE(outputs[0], outputs[2]);
}

TEST_F(SessionTest, GivesTheSameSampledTextForEveryChunking) {
  std::vector<TokenId> expected;
  for (const std::int64_t max_rows : {1, 3, 7, 64, 127, 128, 129, 300}) {
    const auto s = session(1024, max_rows);
    ASSERT_OK(s->append(prompt(300)));
    const auto ids = s->generate(sampled(9))->ids;
    if (expected.empty()) expected = ids;
    EXPECT_EQ(ids, expected) << "chunks of " << max_rows;
  }
}

// With drafts and without: each way has a loop of its own.
TEST_F(SessionTest, ContinuesInPiecesAsInOne) {
  for (const bool drafting : {true, false}) {
    const SessionOptions options{.context = 1024, .max_rows = 64, .drafting = drafting};
    const auto whole = engine_->create_session(options).value();
    ASSERT_OK(whole->append(prompt(50)));
    const auto expected = whole->generate(sampled(4, 60))->ids;
    const auto pieces = engine_->create_session(options).value();
    ASSERT_OK(pieces->append(prompt(50)));
    std::vector<TokenId> got;
    for (int i = 0; i < 6; ++i) {
      const auto ids = pieces->generate(sampled(4, 10))->ids;
      got.insert(got.end(), ids.begin(), ids.end());
    }
    EXPECT_EQ(got, expected) << "drafting: " << drafting;
  }
}

TEST_F(SessionTest, TruncatesExactly) {
  const auto s = session();
  ASSERT_OK(s->append(prompt(200)));
  const auto expected = s->generate(sampled(3))->ids;
  ASSERT_OK(s->truncate(200));
  EXPECT_EQ(s->generate(sampled(3))->ids, expected);
  // Past the window only as far as the rings hold it.
  EXPECT_EQ(s->truncate(20).error().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(s->tokens().size(), 240U);
}

TEST_F(SessionTest, SyncRunsOnlyWhatIsNew) {
  const auto s = session();
  auto ids = prompt(100);
  EXPECT_EQ(s->sync(ids).value(), 0);
  const auto first = s->generate(sampled(3, 20));
  ASSERT_OK(first);
  ids.insert(ids.end(), first->ids.begin(), first->ids.end());
  const auto tail = prompt(15);
  ids.insert(ids.end(), tail.begin(), tail.end());
  // The last token of the reply was not run yet.
  EXPECT_EQ(s->sync(ids).value(), 119);
  const auto second = s->generate(sampled(3, 20));
  ASSERT_OK(second);
  EXPECT_EQ(second->prefill_tokens, 16);
  const auto fresh = session();
  ASSERT_OK(fresh->append(ids));
  EXPECT_EQ(fresh->generate(sampled(3, 20))->ids, second->ids);
}

TEST_F(SessionTest, ContinuesFromEveryPlaceItCanBeTruncatedTo) {
  const auto ids = prompt(400);
  const auto fresh = [&](Position length) {
    const auto s = session();
    EXPECT_TRUE(s->append(std::span<const TokenId>(ids).first(static_cast<std::size_t>(length))));
    return s->generate(sampled(6, 5))->ids;
  };
  // The window is 128 and the rings hold 191 rows, so truncation must end somewhere in between.
  Position refused = 0;
  for (Position length = 399; length > 300; --length) {
    const auto s = session();
    ASSERT_OK(s->append(ids));
    ASSERT_OK(s->prefill({}));
    if (!s->truncate(length)) {
      refused = length;
      break;
    }
    // Every fourth place in the short form.
    if (length % by_form(4, 1) != 0) continue;
    ASSERT_EQ(s->generate(sampled(6, 5)).value().ids, fresh(length)) << length;
  }
  EXPECT_EQ(refused, 399 - 191 + 128 - 1);  // the last token is not run yet
  // Syncing to the very tokens that are held keeps all of them.
  const auto s = session();
  EXPECT_EQ(s->sync(ids).value(), 0);
  ASSERT_OK(s->prefill({}));
  EXPECT_EQ(s->sync(ids).value(), 399);  // the last one is run for the token behind it
  EXPECT_EQ(s->generate(sampled(6, 5))->ids, fresh(400));
}

TEST_F(SessionTest, SyncStartsAgainWhenTheWindowIsGone) {
  const auto s = session();
  const auto ids = prompt(400);
  EXPECT_EQ(s->sync(ids).value(), 0);
  ASSERT_OK(s->prefill({}));
  auto other = prompt(30);
  other.push_back(7);
  EXPECT_EQ(s->sync(other).value(), 0);
  ASSERT_OK(s->prefill({}));
  EXPECT_EQ(s->position(), 30);
  // Failing leaves everything as it was.
  EXPECT_FALSE(s->sync(std::vector<TokenId>{2, -5}).has_value());
  EXPECT_EQ(s->tokens().size(), 31U);
}

TEST_F(SessionTest, StopsAtAStopIdAMaximumACallbackAndAFullContext) {
  const auto s = session(64, 64);
  ASSERT_OK(s->append(prompt(20)));
  EXPECT_EQ(s->generate({.max_tokens = 5, .ignore_model_stop_ids = true})->stop_reason,
            StopReason::kMaxTokens);
  int calls = 0;
  const auto stopped = s->generate({.max_tokens = 5, .ignore_model_stop_ids = true},
                                   [&](const TokenEvent&) { return ++calls < 3; });
  EXPECT_EQ(stopped->stop_reason, StopReason::kCallback);
  EXPECT_EQ(stopped->ids.size(), 3U);
  const auto next = s->generate({.max_tokens = 1, .ignore_model_stop_ids = true})->ids.front();
  ASSERT_OK(s->truncate(28));
  const auto stop =
      s->generate({.max_tokens = 9, .stop_ids = {next}, .ignore_model_stop_ids = true});
  EXPECT_EQ(stop->stop_reason, StopReason::kStopId);
  EXPECT_EQ(stop->ids, std::vector<TokenId>{next});
  const auto full = s->generate({.max_tokens = 100, .ignore_model_stop_ids = true});
  EXPECT_EQ(full->stop_reason, StopReason::kContext);
  EXPECT_EQ(s->tokens().size(), 64U);
}

TEST_F(SessionTest, RunsThePromptOfAGenerationOfNoTokens) {
  const auto s = session(256, 16);
  ASSERT_OK(s->append(prompt(40)));
  const auto none = s->generate({.max_tokens = 0});
  ASSERT_OK(none);
  EXPECT_TRUE(none->ids.empty());
  EXPECT_GT(none->prefill_seconds, 0.0);
  EXPECT_EQ(s->position(), 39);
}

TEST_F(SessionTest, TellsWhichTokensWereDrafted) {
  const auto s = session();
  ASSERT_OK(s->append(prompt(30)));
  GenerateOptions options = sampled(3);
  options.draft_length = 4;
  std::vector<bool> drafted;
  const auto result = s->generate(options, [&](const TokenEvent& token) {
    drafted.push_back(token.drafted);
    EXPECT_EQ(token.logprobs, nullptr);
    return true;
  });
  ASSERT_OK(result);
  ASSERT_GT(result->accepted, 0);
  std::vector<bool> expected = {false};  // the prompt's
  for (const RoundRecord& round : result->rounds) {
    for (std::int32_t i = 0; i < round.committed; ++i) expected.push_back(i < round.accepted);
  }
  EXPECT_EQ(drafted, expected);
}

TEST_F(SessionTest, RefusesBadInputInOneLineAndStaysUsable) {
  const auto s = session(64, 16);
  const auto message = [](const Status& status) {
    return status ? std::string("accepted") : status.error().message();
  };
  EXPECT_EQ(message(s->append(std::vector<TokenId>{2, 4096})),
            "token id must be 0 to 4095 but is 4096 (at index 1)");
  EXPECT_NE(message(s->append(prompt(65))).find("context of 64 tokens"), std::string::npos);
  EXPECT_FALSE(s->generate({}).has_value());  // nothing to continue
  ASSERT_OK(s->append(prompt(10)));
  EXPECT_FALSE(s->generate({.sampling = {.temperature = -1.0F}}).has_value());
  EXPECT_FALSE(s->generate({.max_tokens = -1}).has_value());
  EXPECT_EQ(s->generate({.max_tokens = 3, .ignore_model_stop_ids = true})->ids.size(), 3U);
  EXPECT_EQ(engine_->create_session({.context = 1 << 20}).error().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(SessionTest, CancelsALongPromptBetweenChunksAndGoesOnLater) {
  const auto s = session(1024, 16);
  ASSERT_OK(s->append(prompt(100)));
  const Status cancelled = s->prefill([](std::int64_t done, std::int64_t) { return done < 40; });
  EXPECT_EQ(cancelled.error().code(), StatusCode::kCancelled);
  EXPECT_EQ(s->position(), 48);
  const auto fresh = session();
  ASSERT_OK(fresh->append(prompt(100)));
  EXPECT_EQ(s->generate(sampled(1))->ids, fresh->generate(sampled(1))->ids);
}

TEST_F(SessionTest, RunsSeveralSessionsOnSeveralThreadsWithTheSameBits) {
  std::vector<std::vector<TokenId>> outputs(3);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto s = session();
      ASSERT_OK(s->append(prompt(60)));
      outputs[i] = s->generate(sampled(8, 30))->ids;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(outputs[0].size(), 30U);
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(outputs[0], outputs[2]);
}

TEST_F(SessionTest, FindsStopStringsAcrossTokenBorders) {
  const Tokenizer& tokenizer = **engine_->tokenizer();
  const std::vector<ChatMessage> messages = {{"user", "Count from 5 to 12."}};
  const auto ids =
      tokenizer.encode(engine_->apply_chat_template(messages, {}).value().text).value();
  const auto whole = session();
  ASSERT_OK(whole->append(ids));
  const auto expected = generate_text(*whole, tokenizer, {.generate = {.max_tokens = 60}});
  ASSERT_OK(expected);
  ASSERT_EQ(expected->text, "5, 6, 7, 8, 9, 10, 11, 12.");
  for (std::size_t begin = 0; begin < expected->text.size(); ++begin) {
    const std::string stop = expected->text.substr(begin, 5);
    const auto s = session();
    ASSERT_OK(s->append(ids));
    std::string streamed;
    const auto result =
        generate_text(*s, tokenizer, {.generate = {.max_tokens = 60}, .stop_strings = {stop}},
                      [&](std::string_view piece) {
                        streamed += piece;
                        return true;
                      });
    ASSERT_OK(result);
    EXPECT_TRUE(result->stopped_by_text);
    EXPECT_EQ(result->text, expected->text.substr(0, expected->text.find(stop)));
    EXPECT_EQ(streamed, result->text);
  }
  EXPECT_FALSE(generate_text(*whole, tokenizer, {.stop_strings = {""}}).has_value());
}

TEST_F(SessionTest, TextThatTheCallerEndsIsThatOfItsTokens) {
  const Tokenizer& tokenizer = **engine_->tokenizer();
  const std::vector<ChatMessage> messages = {{"user", "Count from 5 to 12."}};
  const auto prompt = engine_->apply_chat_template(messages).value();
  const auto ids = tokenizer.encode(prompt.text, {.plain = prompt.plain}).value();
  for (int most = 1; most <= 8; ++most) {
    const auto s = session();
    ASSERT_OK(s->append(ids));
    std::string streamed;
    int calls = 0;
    // The text begins like the stop string and then differs: what is held back comes out.
    const auto result = generate_text(
        *s, tokenizer, {.generate = {.max_tokens = 60}, .stop_strings = {", 6, 7, 9"}},
        [&](std::string_view piece) {
          streamed += piece;
          // Only the last call comes when the session is free again.
          EXPECT_EQ(s->fork().has_value(), calls == most);
          return ++calls < most;
        });
    ASSERT_OK(result);
    EXPECT_EQ(calls, most + 1);  // the last one brings what was held back
    EXPECT_EQ(result->tokens.ids.size(), static_cast<std::size_t>(most));
    EXPECT_EQ(result->tokens.stop_reason, StopReason::kCallback);
    EXPECT_FALSE(result->stopped_by_text);
    EXPECT_EQ(result->text, tokenizer.decode(result->tokens.ids));
    EXPECT_EQ(streamed, result->text);
  }
}

}  // namespace
}  // namespace kakeya::test
