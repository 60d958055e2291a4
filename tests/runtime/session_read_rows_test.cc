// Rows that a session gives of its tokens: what the passes themselves make, however tokens are
// divided, and the session goes on as if nobody had looked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kakeya/engine.h"
#include "model/test_model.h"
#include "runtime/demo_engine.h"
#include "runtime/demo_sessions.h"
#include "runtime/engine_impl.h"

namespace kakeya::test {
namespace {

using testing::HasSubstr;

class SessionReadRows : public DemoEngineTest {
 protected:
  // The rows of all tokens, of one pass.
  static std::vector<float> expected(const Ids& ids, RowKind kind) {
    const auto count = static_cast<std::int64_t>(ids.size());
    const auto timeline =
        engine_->create_timeline({.context = count, .max_rows = count}, count).value();
    const std::int64_t final_norm = engine_->config().num_hidden_layers;
    const ForwardRecord record = run(*timeline, ids, {&final_norm, 1}, count);
    return kind == RowKind::kLogits ? record.logits : record.taps;
  }

  static Status read(Session& session,
                     std::span<const TokenId> ids,
                     RowKind kind,
                     std::vector<float>& rows) {
    auto next = static_cast<Position>(session.tokens().size());
    return session.read_rows(ids, kind, [&](Position position, std::span<const float> row) {
      EXPECT_EQ(position, next++);
      rows.insert(rows.end(), row.begin(), row.end());
      return Status();
    });
  }
};

constexpr std::array kKinds = {RowKind::kLogits, RowKind::kHidden};

TEST_F(SessionReadRows, AreThoseOfOnePassHoweverTokensAreDivided) {
  const Ids ids = random_ids(300, 8);
  for (const RowKind kind : kKinds) {
    const std::vector<float> all = expected(ids, kind);
    for (const std::int64_t max_rows : {1, 64, 300}) {
      for (const std::size_t part : {7U, 120U, 300U}) {
        const auto session =
            engine_->create_session({.context = 512, .max_rows = max_rows}).value();
        std::vector<float> rows;
        for (std::size_t i = 0; i < ids.size(); i += part) {
          const auto some = std::span(ids).subspan(i, std::min(part, ids.size() - i));
          ASSERT_OK(read(*session, some, kind, rows));
        }
        EXPECT_EQ(rows, all) << max_rows << " rows, parts of " << part;
      }
    }
  }
}

TEST_F(SessionReadRows, ASessionGoesOnAsIfNobodyHadLooked) {
  const Ids ids = random_ids(90, 4);
  for (const RowKind kind : kKinds) {
    const auto plain = engine_->create_session().value();
    const auto read_of = engine_->create_session().value();
    ASSERT_OK(plain->append(random_ids(20, 3)));
    ASSERT_OK(read_of->append(random_ids(20, 3)));
    ASSERT_OK(plain->append(ids));
    std::vector<float> rows;
    ASSERT_OK(read(*read_of, ids, kind, rows));
    const std::uint64_t bytes = engine_->footprint().total_reserved();
    const Stream first = go_on(*plain, generation(40));
    EXPECT_EQ(go_on(*read_of, generation(40)), first);
    EXPECT_EQ(engine_->footprint().total_reserved(), bytes) << "memory for rows stays";
    // Behind a generation, whose last token is pending.
    ASSERT_OK(plain->append(ids));
    ASSERT_OK(read(*read_of, ids, kind, rows));
    EXPECT_EQ(go_on(*read_of, generation(20)), go_on(*plain, generation(20)));
  }
}

TEST_F(SessionReadRows, AreTheSameWithAPromptCacheThatHasTheTokens) {
  EngineOptions options = demo_options("auto");
  options.prompt_cache_bytes = std::uint64_t{64} << 20;
  const auto engine = open_engine(options);
  const Ids ids = random_ids(200, 6);
  const std::vector<float> all = expected(ids, RowKind::kLogits);
  const std::int64_t from = 150 * engine_->vocab_size();
  for (int i = 0; i < 2; ++i) {
    const auto session = engine->create_session().value();
    ASSERT_OK(session->append(std::span(ids).first(150)));
    std::vector<float> rows;
    ASSERT_OK(read(*session, std::span(ids).subspan(150), RowKind::kLogits, rows));
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(), all.begin() + from, all.end()));
    EXPECT_EQ(session->cached_tokens() > 0, i == 1);
  }
}

TEST_F(SessionReadRows, AnErrorOfTheCallerEndsItAndTheSessionGoesOn) {
  const Ids ids = random_ids(30, 2);
  for (const Position bad : {Position{10}, Position{29}}) {
    const auto session = engine_->create_session({.context = 128, .max_rows = 16}).value();
    Position seen = 0;
    const Status done =
        session->read_rows(ids, RowKind::kHidden, [&](Position position, std::span<const float>) {
          seen = position;
          return position < bad ? Status() : Unexpected(Error(StatusCode::kCancelled, "enough"));
        });
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().message(), "enough");
    EXPECT_EQ(seen, bad);
    EXPECT_EQ(session->tokens().size(), ids.size());
    const auto plain = engine_->create_session().value();
    ASSERT_OK(plain->append(ids));
    EXPECT_EQ(go_on(*session, generation(10)), go_on(*plain, generation(10)));
  }
}

TEST_F(SessionReadRows, WhatCannotBeRunIsRefusedAndChangesNothing) {
  const auto session = engine_->create_session({.context = 40, .max_rows = 16}).value();
  ASSERT_OK(session->append(random_ids(9, 1)));
  const auto refused = [&](const Ids& ids, StatusCode code, const std::string& part) {
    std::vector<float> rows;
    const Status done = read(*session, ids, RowKind::kLogits, rows);
    ASSERT_FALSE(done.has_value()) << part;
    EXPECT_EQ(done.error().code(), code);
    EXPECT_THAT(done.error().message(), HasSubstr(part));
    EXPECT_TRUE(rows.empty());
  };
  refused({-1}, StatusCode::kInvalidArgument, "token id must be");
  refused(Ids(32, 5), StatusCode::kResourceExhausted, "SessionOptions::context");
  EXPECT_EQ(session->tokens().size(), 9U);
  EXPECT_EQ(session->position(), 0);
  std::vector<float> rows;
  ASSERT_OK(read(*session, {}, RowKind::kLogits, rows));
  ASSERT_OK(read(*session, Ids(31, 5), RowKind::kLogits, rows));
}

}  // namespace
}  // namespace kakeya::test
