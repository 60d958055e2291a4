// Needles in a haystack: intervals worked out by hand, what may be claimed, and replies of the demo
// model whose evicted and restored rows are counted and shown to matter.
#include "eval/niah/niah_eval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <numeric>
#include <string>

#include "model/test_model.h"

namespace kakeya::eval {
namespace {

using testing::HasSubstr;

// z = 1.96 to 15 digits, z^2 = 3.841459. Of 10 of 20: the middle is 1/2, and
// z / (1 + z^2 / 20) * sqrt(1 / 80 + z^2 / 1600) = 1.644172 * 0.122070.
TEST(WilsonInterval, IsWhatTheFormulaGivesByHand) {
  constexpr double kDigits = 1e-5;  // of the hand's arithmetic
  EXPECT_NEAR(wilson_interval(10, 20).low, 0.299298, kDigits);
  EXPECT_NEAR(wilson_interval(10, 20).high, 0.700702, kDigits);
  // z^2 / (n + z^2), and its complement.
  EXPECT_EQ(wilson_interval(0, 20).low, 0.0);
  EXPECT_NEAR(wilson_interval(0, 20).high, 3.841459 / 23.841459, kDigits);
  EXPECT_NEAR(wilson_interval(20, 20).low, 20.0 / 23.841459, kDigits);
  EXPECT_EQ(wilson_interval(20, 20).high, 1.0);
  // One of one: (1 + z^2 / 2 - z * z / 2) / (1 + z^2).
  EXPECT_NEAR(wilson_interval(1, 1).low, 1.0 / 4.841459, kDigits);
}

std::vector<NiahSample> samples_of(std::int64_t number, const NiahReply& reply) {
  std::vector<NiahSample> samples;
  for (std::int64_t i = 0; i < number; ++i) {
    samples.push_back({.place = {512, 50, i}, .tokens = 512, .answers = 2, .replies = {reply}});
  }
  return samples;
}

NiahClaim claim_of(const std::vector<NiahSample>& samples, const std::string& mode) {
  const std::vector<std::string> modes = {mode};
  const std::vector<std::int64_t> lengths = {512};
  return niah_claims(samples, modes, lengths).at(0);
}

TEST(NiahClaims, CountRepliesWithAllAnswersAndErrorsAsNotFound) {
  std::vector<NiahSample> samples = samples_of(20, {.mode = "exact", .found = 2});
  samples[3].replies[0].found = 1;
  samples[4].replies[0] = {.mode = "exact", .error = "no memory"};
  const NiahClaim claim = claim_of(samples, "exact");
  EXPECT_EQ(claim.samples, 20);
  EXPECT_EQ(claim.found, 18);
  EXPECT_EQ(claim.errors, 1);
  EXPECT_TRUE(claim.made);
  EXPECT_EQ(claim.recall(), 0.9);
  samples.pop_back();
  EXPECT_FALSE(claim_of(samples, "exact").made) << "of 19 prompts";
}

TEST(NiahClaims, AreMadeOnlyWhereAModeDidWhatItIsNamedFor) {
  const auto made = [](const std::string& mode, const NiahReply& last) {
    std::vector<NiahSample> samples =
        samples_of(20, {.evicted_rows = 8, .restored_rows = 8, .codes_matter = true});
    if (!mode.starts_with("restore")) samples = samples_of(20, {.evicted_rows = last.evicted_rows});
    samples.back().replies[0] = last;
    return claim_of(samples, mode).made;
  };
  EXPECT_TRUE(made("exact", {}));
  EXPECT_FALSE(made("exact", {.evicted_rows = 1}));
  EXPECT_TRUE(made("drop-full", {.evicted_rows = 8}));
  EXPECT_FALSE(made("drop-full", {}));
  EXPECT_FALSE(made("drop-full", {.evicted_rows = 8, .restored_rows = 8}));
  EXPECT_TRUE(
      made("restore-full-aux", {.evicted_rows = 8, .restored_rows = 8, .codes_matter = true}));
  EXPECT_FALSE(
      made("restore-full-aux", {.evicted_rows = 8, .restored_rows = 8, .codes_matter = false}));
  EXPECT_FALSE(made("restore-full-aux", {.evicted_rows = 8, .codes_matter = true}));
  EXPECT_FALSE(made("no-such-mode", {}));
}

class NiahEval : public testing::Test {
 protected:
  static constexpr std::int64_t kLength = 300;

  void SetUp() override {
    engine_ = EngineImpl::open(
                  {.model_dir = KAKEYA_DEMO_MODEL, .num_threads = 2, .draft = {.source = "auto"}})
                  .value();
    options_.hash = [](std::span<const TokenId> ids) {
      return std::to_string(
          std::accumulate(ids.begin(), ids.end(), std::int64_t{0},
                          [](std::int64_t a, TokenId b) { return 31 * a % 1000003 + b; }));
    };
    options_.projections["aux"] =
        engine_->load_projection(std::string(KAKEYA_DEMO_MODEL) + "/projections/aux").value();
    std::string text;
    for (int i = 0; i < 80; ++i) text += "The old man looked at the sea and said nothing at all. ";
    prompt_ = NeedlePrompts::create(engine_->text(), {text}, {}, 7)
                  .value()
                  .make({kLength, 50, 0})
                  .value();
  }

  NiahReply ask(const std::string& mode) {
    const std::vector<KvMode> modes = choose_kv_modes({mode}).value();
    return ask_for_needles(*engine_, prompt_, modes.back(), options_);
  }

  std::unique_ptr<EngineImpl> engine_;
  NiahOptions options_;
  NeedlePrompt prompt_;
};

// Two full layers keep 4 + 64 of 300 positions for the last one: 4 to 235 are gone from each.
constexpr std::int64_t kGone = 2 * (300 - 4 - 64);

TEST_F(NiahEval, CountsRowsThatAreGoneAndShowsThatRestoredOnesMatter) {
  const NiahReply exact = ask("exact");
  EXPECT_EQ(exact.error, "");
  EXPECT_EQ(exact.found, 1);
  EXPECT_EQ(exact.evicted_rows, 0);
  EXPECT_FALSE(exact.codes_matter.has_value());
  const NiahReply dropped = ask("drop-full");
  EXPECT_EQ(dropped.error, "");
  EXPECT_EQ(dropped.found, 0) << "the code was in rows that are gone";
  EXPECT_EQ(dropped.evicted_rows, kGone);
  EXPECT_EQ(dropped.restored_rows, 0);
  const NiahReply restored = ask("restore-full-aux");
  EXPECT_EQ(restored.error, "");
  EXPECT_EQ(restored.evicted_rows, kGone);
  EXPECT_EQ(restored.restored_rows, kGone);
  EXPECT_EQ(restored.codes_matter, true);
  // Four sliding layers see 128 positions, of which 64 are kept.
  EXPECT_EQ(ask("drop").evicted_rows, kGone + 4 * 64);
}

// With the rows' own keys and values mixed in whole, codes are read and change nothing.
TEST_F(NiahEval, TheProofLeavesTheReplyAsItWas) {
  const KvMode mode = choose_kv_modes({"restore-full-aux"}).value().back();
  SessionOptions session = mode.session;
  session.context = kLength + options_.max_tokens;
  session.max_rows = options_.chunk;
  const auto plain =
      engine_->create_session(session, {.projection = options_.projections["aux"].get()}).value();
  ASSERT_OK(plain->append(prompt_.ids));
  const auto result = plain->generate({.max_tokens = options_.max_tokens, .draft_length = 0});
  ASSERT_OK(result);
  EXPECT_EQ(ask("restore-full-aux").sha256, options_.hash(result->ids));
}

TEST_F(NiahEval, AnErrorIsAReply) {
  prompt_.ids[17] = 1 << 20;
  const NiahReply reply = ask("exact");
  EXPECT_THAT(reply.error, HasSubstr("token id"));
  EXPECT_EQ(reply.found, 0);
  EXPECT_GT(reply.seconds, 0.0);
  const auto again = parse_niah_reply(niah_reply_json(reply));
  ASSERT_OK(again);
  EXPECT_EQ(again->error, reply.error);
}

}  // namespace
}  // namespace kakeya::eval
