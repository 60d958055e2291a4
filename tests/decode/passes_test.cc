// The passes that the loops ask of the target: each token of a prompt once, one pass a round,
// nothing else.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "decode/generation.h"
#include "decode/scripted_decoder.h"
#include "decode/step.h"

namespace kakeya::test {
namespace {

using Pass = ScriptedDecoder::Pass;

constexpr std::int64_t kVocabulary = 11;

// The token that a greedy stream has behind `last`.
TokenId next_of(TokenId last) {
  return (3 * last + 1) % kVocabulary;
}

ScriptedDecoder make_decoder() {
  return {kVocabulary,
          [](TokenId last, TokenId next) { return next == next_of(last) ? 1.0F : 0.0F; }};
}

// Drafts of which the first `right` are what the target will say.
class PartlyRight final : public DraftSource {
 public:
  explicit PartlyRight(std::size_t right) : right_(right) {}

  std::int64_t max_length() const override { return 7; }
  DraftOffer offer(std::span<const TokenId> /*tokens*/, Sampler& /*sampler*/) override {
    return {DraftKind::kNgram, 7};
  }
  Status draft(std::span<const TokenId> tokens,
               Sampler& /*sampler*/,
               std::span<TokenId> out) override {
    TokenId last = tokens.back();
    for (std::size_t i = 0; i < out.size(); ++i) {
      last = next_of(last);
      out[i] = i < right_ ? last : (last + 1) % kVocabulary;
    }
    return {};
  }

 private:
  std::size_t right_;
};

const std::vector<TokenId> kPrompt(50, 2);

TEST(Passes, RunEachTokenOfAPromptOnceInWholeChunks) {
  const ScriptedDecoder decoder = make_decoder();
  ScriptedTarget target(decoder, {.context = 256, .max_rows = 16}, 8);
  ASSERT_OK(target.timeline().push(kPrompt));
  ASSERT_OK(target.timeline().run_pending());
  EXPECT_EQ(decoder.take_passes(),
            (std::vector<Pass>{{0, 16, 0}, {16, 16, 0}, {32, 16, 0}, {48, 2, 0}}));
  ASSERT_OK(target.timeline().run_pending());
  EXPECT_TRUE(decoder.take_passes().empty());
}

TEST(Passes, APlainTokenIsOnePassOfOneRow) {
  const ScriptedDecoder decoder = make_decoder();
  ScriptedTarget target(decoder, {.context = 256, .max_rows = 64}, 1);
  ASSERT_OK(target.timeline().push(kPrompt));
  GenerateResult result;
  ASSERT_OK(
      decode(target.timeline(), target.sampler(), {}, nullptr, {.max_tokens = 20}, {}, {}, result));
  ASSERT_EQ(result.ids.size(), 20U);
  // The first token comes out of the prompt's last pass, the last one stays pending.
  std::vector<Pass> expected = {{0, 50, 1}};
  for (Position p = 50; p < 69; ++p) expected.push_back({p, 1, 1});
  EXPECT_EQ(decoder.take_passes(), expected);
}

// Drafts that are all accepted, some or none: no pass cleans up behind them.
TEST(Passes, ARoundIsOnePassOfItsBlock) {
  for (const std::size_t right : {0U, 1U, 4U, 7U}) {
    const ScriptedDecoder decoder = make_decoder();
    ScriptedTarget target(decoder, {.context = 256, .max_rows = 64}, 8);
    PartlyRight source(right);
    const std::array<DraftSource*, 1> sources = {&source};
    ASSERT_OK(target.timeline().push(kPrompt));
    GenerateResult result;
    ASSERT_OK(decode(target.timeline(), target.sampler(), sources, nullptr,
                     {.max_tokens = 60, .draft_length = 7}, {}, {}, result));
    ASSERT_EQ(result.ids.size(), 60U);
    std::vector<Pass> expected = {{0, 50, 1}};
    Position run = 50;
    for (const RoundRecord& round : result.rounds) {
      expected.push_back({run, round.drafted + 1, round.drafted + 1});
      run += round.committed;
    }
    EXPECT_EQ(decoder.take_passes(), expected) << right;
    EXPECT_EQ(result.rounds.front().committed, static_cast<std::int32_t>(right) + 1);
  }
}

// Not one more for the first token, which is no round of the result.
TEST(Passes, AGenerationBeginsWithTheRestOfItsPrompt) {
  const ScriptedDecoder decoder = make_decoder();
  ScriptedTarget target(decoder, {.context = 256, .max_rows = 64}, 8);
  Timeline& timeline = target.timeline();
  ASSERT_OK(timeline.push(kPrompt));
  PartlyRight source(7);
  const std::array<DraftSource*, 1> sources = {&source};
  GenerateResult result;
  Generation generation(timeline, target.sampler(), sources, nullptr,
                        {.max_tokens = 9, .draft_length = 7}, result);
  std::array<StepPart, 1> parts = {{{.prompt = &timeline, .rows = 30}}};
  EXPECT_EQ(run_step(timeline.workspace(), nullptr, parts).rows, 30);
  while (generation.begin_round()) {
    generation.plan();
    parts = {{{.round = &generation}}};
    run_step(timeline.workspace(), nullptr, parts);
    ASSERT_OK(parts.front().status);
  }
  EXPECT_EQ(decoder.take_passes(), (std::vector<Pass>{{0, 30, 0}, {30, 20, 1}, {50, 8, 8}}));
  ASSERT_EQ(result.ids.size(), 9U);
  ASSERT_EQ(result.rounds.size(), 1U);
  EXPECT_EQ(result.rounds.front().committed, 8);
  TokenId last = kPrompt.back();
  for (const TokenId id : result.ids) EXPECT_EQ(id, last = next_of(last));
}

}  // namespace
}  // namespace kakeya::test
