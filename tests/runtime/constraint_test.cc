// Constraints: only allowed tokens come out, the same ones with drafts and without.
#include "kakeya/constraint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "kakeya/engine.h"
#include "kakeya/scheduler.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"

namespace kakeya::test {
namespace {

// Allows ids by the sum of those before: id % 5 must not be the sum % 5, and after `open` tokens
// everything is allowed.
class SumConstraint final : public Constraint {
 public:
  explicit SumConstraint(std::int64_t vocab_size, std::size_t open = 1000)
      : vocab_size_(vocab_size), open_(open) {}

  bool fill_mask(std::span<std::uint32_t> mask) override {
    ++asked_;
    EXPECT_EQ(std::ssize(mask), (vocab_size_ + 31) / 32);
    if (path_.size() >= open_) return false;
    for (TokenId id = 0; id < vocab_size_; ++id) {
      const auto place = static_cast<std::size_t>(id);
      EXPECT_EQ(mask[place / 32] >> (place % 32) & 1U, 0U);
      if (allows(id)) mask[place / 32] |= 1U << (place % 32);
    }
    return true;
  }
  bool advance(TokenId id) override {
    if (path_.size() < open_ && !allows(id)) return false;
    path_.push_back(id);
    return true;
  }
  void roll_back(std::int64_t count) override {
    ASSERT_LE(count, std::ssize(path_));
    taken_back_ += count;
    path_.resize(path_.size() - static_cast<std::size_t>(count));
  }

  bool allows(TokenId id) const {
    std::int64_t sum = 0;
    for (const TokenId before : path_) sum += before;
    return id % 5 != sum % 5;
  }
  const std::vector<TokenId>& path() const { return path_; }
  int asked() const { return asked_; }
  std::int64_t taken_back() const { return taken_back_; }

 private:
  std::int64_t vocab_size_;
  std::size_t open_;
  std::vector<TokenId> path_;
  int asked_ = 0;
  std::int64_t taken_back_ = 0;
};

GenerateOptions options_of(float temperature, std::int64_t draft_length, Constraint* constraint) {
  GenerateOptions options = generation(60, temperature);
  options.draft_length = draft_length;
  options.constraint = constraint;
  return options;
}

GenerateResult answer(Engine& engine, const GenerateOptions& options) {
  const auto session = engine.create_session().value();
  EXPECT_TRUE(session->append(random_ids(40, 9)).has_value());
  auto result = session->generate(options);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return result ? std::move(result).value() : GenerateResult();
}

TEST(Constraints, OnlyAllowedTokensComeOut) {
  const auto engine = open_engine(demo_options("none"));
  for (const float temperature : {0.0F, 1.0F}) {
    SumConstraint constraint(engine->vocab_size(), 40);
    const std::vector<TokenId> ids = answer(*engine, options_of(temperature, 0, &constraint)).ids;
    EXPECT_EQ(constraint.path(), ids);
    EXPECT_EQ(constraint.asked(), 60);
    SumConstraint again(engine->vocab_size(), 40);
    for (const TokenId id : ids) ASSERT_TRUE(again.advance(id));
    EXPECT_NE(ids, answer(*engine, options_of(temperature, 0, nullptr)).ids);
  }
}

// Its masks are there at the fifth look behind a token.
class LateConstraint final : public Constraint {
 public:
  bool fill_mask(std::span<std::uint32_t> mask) override {
    EXPECT_GT(looks_, 4) << "asked before it was ready";
    std::ranges::fill(mask, ~0U);
    return true;
  }
  bool advance(TokenId) override {
    ++told_;
    looks_ = 0;
    return true;
  }
  Pace pace() override { return ++looks_ > 4 ? Pace::kSlowly : Pace::kNotYet; }
  void roll_back(std::int64_t count) override { told_ -= count; }
  std::int64_t told() const { return told_; }

 private:
  int looks_ = 5;
  std::int64_t told_ = 0;
};

// A request whose mask is not there leaves passes to others, and comes to the same tokens.
TEST(Constraints, OthersGoOnWhileAMaskIsMade) {
  const auto engine = open_engine(demo_options("auto"));
  const std::vector<TokenId> alone =
      answer(*engine, options_of(0.0F, kAutoDraftLength, nullptr)).ids;
  const auto scheduler = engine->create_scheduler({}).value();
  LateConstraint late;
  std::vector<TokenId> ids[2];
  std::int64_t told_by_then = 0;
  for (int i = 0; i < 2; ++i) {
    Request request = {.prompt = random_ids(40, 9),
                       .generate = options_of(0.0F, 0, i == 0 ? &late : nullptr)};
    request.on_token = [&ids, i](const TokenEvent& token) {
      ids[i].push_back(token.id);
      return true;
    };
    request.on_end = [&, i](RequestId, const RequestResult& result) {
      EXPECT_TRUE(result.status.has_value());
      if (i == 1) told_by_then = late.told();
    };
    ASSERT_TRUE(scheduler->add(std::move(request)).has_value());
  }
  while (scheduler->step().value()) {
  }
  EXPECT_EQ(ids[0], alone);
  EXPECT_EQ(ids[1], alone);
  EXPECT_LT(told_by_then, 30);
  EXPECT_EQ(late.told(), 60);
}

// The first choice is that of the logits without what is ruled out.
TEST(Constraints, TheBestOfTheAllowedIsChosen) {
  class Without final : public Constraint {
   public:
    explicit Without(std::vector<TokenId> ids) : ids_(std::move(ids)) {}
    bool fill_mask(std::span<std::uint32_t> mask) override {
      std::ranges::fill(mask, ~0U);
      for (const TokenId id : ids_) {
        mask[static_cast<std::size_t>(id) / 32] &= ~(1U << (static_cast<std::size_t>(id) % 32));
      }
      return true;
    }
    bool advance(TokenId) override { return true; }
    void roll_back(std::int64_t) override {}

   private:
    std::vector<TokenId> ids_;
  };
  const auto model = TestModel::load(KAKEYA_DEMO_MODEL, {.name = "cpu"}, Compute::kFast);
  const auto timeline = model->timeline({.context = 128}, 1);
  ASSERT_OK(timeline->push(random_ids(40, 9)));
  std::vector<float> logits = logits_behind(*timeline);
  const auto engine = open_engine(demo_options("none"));
  std::vector<TokenId> without;
  for (int i = 0; i < 5; ++i) {
    const auto best = std::max_element(logits.begin(), logits.end());
    Without constraint(without);
    GenerateOptions options = options_of(0.0F, 0, &constraint);
    options.max_tokens = 1;
    EXPECT_EQ(answer(*engine, options).ids.front(), best - logits.begin());
    without.push_back(static_cast<TokenId>(best - logits.begin()));
    *best = -1e30F;
  }
}

TEST(Constraints, DraftsChangeNothing) {
  const auto plain = open_engine(demo_options("none"));
  for (const char* draft : {"auto", "ngram", KAKEYA_DEMO_MODEL "/drafter"}) {
    const auto engine = open_engine(demo_options(draft));
    for (const float temperature : {0.0F, 1.0F}) {
      SumConstraint expected(plain->vocab_size(), 40);
      const auto ids = answer(*plain, options_of(temperature, 0, &expected)).ids;
      for (const std::int64_t length : {1, 5, 15}) {
        SumConstraint constraint(engine->vocab_size(), 40);
        const GenerateResult result = answer(*engine, options_of(temperature, length, &constraint));
        EXPECT_EQ(result.ids, ids) << draft << " " << length << " " << temperature;
        EXPECT_EQ(constraint.path(), ids);
      }
    }
  }
}

TEST(Constraints, DraftsAreMaskedToo) {
  const auto engine = open_engine(demo_options(KAKEYA_DEMO_MODEL "/drafter"));
  SumConstraint constraint(engine->vocab_size());
  const GenerateResult result = answer(*engine, options_of(0.0F, 5, &constraint));
  EXPECT_GT(result.drafted, 100);
  // Each draft was asked for and taken back, by the drafter and when forbidden ones are dropped.
  EXPECT_GE(constraint.taken_back(), 2 * result.drafted);
  EXPECT_GE(constraint.asked(), result.drafted);
}

TEST(Constraints, OneThatAllowsNothingIsAnError) {
  class Nothing final : public Constraint {
   public:
    bool fill_mask(std::span<std::uint32_t>) override { return ++asked_ > 3; }
    bool advance(TokenId) override { return asked_ <= 3; }
    void roll_back(std::int64_t) override {}

   private:
    int asked_ = 0;
  };
  for (const char* draft : {"none", "auto"}) {
    const auto engine = open_engine(demo_options(draft));
    Nothing constraint;
    const auto session = engine->create_session().value();
    ASSERT_OK(session->append(random_ids(40, 9)));
    const auto result = session->generate(options_of(0.0F, *draft == 'a' ? 3 : 0, &constraint));
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(result.error().message().find("the constraint allows no token at position 4"),
              std::string::npos)
        << result.error().message();
  }
}

// Allows `count` tokens and then nothing.
class Countdown final : public Constraint {
 public:
  explicit Countdown(std::int64_t count) : left_(count) {}

  bool fill_mask(std::span<std::uint32_t>) override { return left_ <= 0; }
  bool advance(TokenId) override {
    if (left_ <= 0) return false;
    --left_;
    return true;
  }
  void roll_back(std::int64_t count) override { left_ += count; }

 private:
  std::int64_t left_;
};

// However many drafts there are, alone as in shared passes, and wherever in a round it is refused.
TEST(Constraints, TokensBeforeARefusalAreDelivered) {
  const auto engine = open_engine(demo_options("auto"));
  std::vector<TokenId> heard;
  const auto hear = [&](const TokenEvent& token) {
    heard.push_back(token.id);
    return true;
  };
  for (std::size_t count = 5; count < 30; ++count) {
    const std::int64_t draft_length = count % 2 == 0 ? 3 : 15;
    heard.clear();
    Countdown alone(static_cast<std::int64_t>(count));
    const auto session = engine->create_session().value();
    ASSERT_OK(session->append(random_ids(40, 9)));
    ASSERT_FALSE(session->generate(options_of(0.0F, draft_length, &alone), hear).has_value());
    EXPECT_EQ(heard.size(), count);
    EXPECT_EQ(session->tokens().size(), 40 + count);
    heard.clear();
    Countdown scheduled(static_cast<std::int64_t>(count));
    const auto scheduler = engine->create_scheduler({}).value();
    std::size_t ended = 0;
    ASSERT_OK(scheduler->add({.prompt = random_ids(40, 9),
                              .generate = options_of(0.0F, draft_length, &scheduled),
                              .on_token = hear,
                              .on_end = [&](RequestId, const RequestResult& result) {
                                EXPECT_FALSE(result.status.has_value());
                                ended = result.generated.ids.size();
                              }}));
    while (scheduler->step().value()) continue;
    EXPECT_EQ(heard.size(), count);
    EXPECT_EQ(ended, count);
  }
}

// A callback may stop inside a round: the tokens behind it are taken back from the constraint too.
TEST(Constraints, KnowOnlyWhatStays) {
  const auto engine = open_engine(demo_options("auto"));
  std::int64_t behind = 0;  // tokens that were taken back
  for (std::size_t stop = 1; stop < 40; ++stop) {
    SumConstraint constraint(engine->vocab_size(), 0);
    std::vector<TokenId> heard;
    const auto session = engine->create_session().value();
    ASSERT_OK(session->append(random_ids(40, 9)));
    const auto result =
        session->generate(options_of(0.0F, 15, &constraint), [&](const TokenEvent& token) {
          heard.push_back(token.id);
          return heard.size() < stop;
        });
    ASSERT_OK(result);
    EXPECT_EQ(result->ids, heard);
    EXPECT_EQ(constraint.path(), heard) << stop;
    // The tokens taken back for drafts are no more than were drafted.
    behind += constraint.taken_back();
  }
  EXPECT_GT(behind, 0);
}

// Allows the tokens of a text alone, in order, and proposes them, or others that it does not allow.
class Dictated final : public Constraint {
 public:
  Dictated(std::vector<TokenId> text, bool lies) : text_(std::move(text)), lies_(lies) {}

  bool fill_mask(std::span<std::uint32_t> mask) override {
    const auto id = static_cast<std::size_t>(text_[at_]);
    mask[id / 32] |= 1U << (id % 32);
    return true;
  }
  bool advance(TokenId id) override {
    if (id != text_[at_]) return false;
    ++at_;
    return true;
  }
  void roll_back(std::int64_t count) override { at_ -= static_cast<std::size_t>(count); }
  std::int64_t propose(std::span<TokenId> out) override {
    const std::size_t count = std::min(out.size(), text_.size() - at_);
    for (std::size_t i = 0; i < count; ++i) out[i] = text_[at_ + i] + (lies_ ? 1 : 0);
    return static_cast<std::int64_t>(count);
  }

 private:
  std::vector<TokenId> text_;
  bool lies_;
  std::size_t at_ = 0;
};

// Tokens that a form leaves no choice about take few passes; wrong proposals cost none.
TEST(Constraints, ProposalsAreDrafts) {
  const auto engine = open_engine(demo_options("ngram"));
  const std::vector<TokenId> text = random_ids(80, 11);
  for (const bool lies : {false, true}) {
    Dictated constraint(text, lies);
    const GenerateResult result = answer(*engine, options_of(0.0F, kAutoDraftLength, &constraint));
    EXPECT_EQ(result.ids, std::vector(text.begin(), text.begin() + std::ssize(result.ids)));
    EXPECT_GE(result.ids.size(), 30U);
    if (lies) {
      EXPECT_EQ(result.drafted, 0);
      continue;
    }
    EXPECT_LT(result.rounds.size(), result.ids.size() / 2);
    EXPECT_EQ(result.accepted, result.drafted);
    for (const RoundRecord& round : result.rounds) {
      EXPECT_TRUE(round.drafted == 0 || round.kind == DraftKind::kForm);
    }
  }
}

// Allows one token alone.
class Only final : public Constraint {
 public:
  explicit Only(TokenId id) : id_(id) {}

  bool fill_mask(std::span<std::uint32_t> mask) override {
    mask[static_cast<std::size_t>(id_) / 32] |= 1U << (static_cast<std::size_t>(id_) % 32);
    return true;
  }
  bool advance(TokenId) override { return true; }
  void roll_back(std::int64_t) override {}

 private:
  TokenId id_;
};

// A token that is allowed may be excluded by a bias; then nothing is chosen, and nothing forbidden
// ever.
TEST(Constraints, NothingForbiddenIsChosenWhereNothingIsLeft) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto engine = open_engine(demo_options("none"));
  for (const float temperature : {0.0F, 1.0F}) {
    Only constraint(130);
    GenerateOptions options = options_of(temperature, 0, &constraint);
    options.sampling.logit_bias = {{130, -kInfinity}};
    const auto session = engine->create_session().value();
    ASSERT_OK(session->append(random_ids(40, 9)));
    const auto result = session->generate(options);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(result.error().message().find("nothing is left to choose from"), std::string::npos)
        << result.error().message();
    // A bias cannot bring back what is forbidden.
    options.sampling.logit_bias = {{131, kInfinity}, {130, -3.0e38F}};
    for (const TokenId id : answer(*engine, options).ids) EXPECT_EQ(id, 130);
    // Without a constraint too.
    options.constraint = nullptr;
    options.sampling.logit_bias.clear();
    for (TokenId id = 0; id < engine->vocab_size(); ++id) {
      options.sampling.logit_bias.emplace_back(id, -kInfinity);
    }
    EXPECT_FALSE(session->generate(options).has_value());
  }
}

TEST(Constraints, HoldInSharedPasses) {
  const auto engine = open_engine(demo_options("auto"));
  std::vector<std::unique_ptr<SumConstraint>> constraints;
  std::vector<std::vector<TokenId>> got(6);
  {
    const auto scheduler = engine->create_scheduler({}).value();
    for (std::size_t i = 0; i < got.size(); ++i) {
      constraints.push_back(std::make_unique<SumConstraint>(engine->vocab_size(), 40));
      Request request;
      request.prompt = random_ids(40, 9);
      request.generate = options_of(i % 2 == 0 ? 0.0F : 1.0F, static_cast<std::int64_t>(i % 3) * 4,
                                    constraints.back().get());
      request.on_end = [&got, i](RequestId, const RequestResult& result) {
        got[i] = result.generated.ids;
      };
      ASSERT_OK(scheduler->add(std::move(request)));
    }
    while (scheduler->step().value()) {
    }
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    SumConstraint constraint(engine->vocab_size(), 40);
    EXPECT_EQ(got[i], answer(*engine, options_of(i % 2 == 0 ? 0.0F : 1.0F, 0, &constraint)).ids);
    EXPECT_EQ(constraints[i]->path(), got[i]);
  }
}

}  // namespace
}  // namespace kakeya::test
