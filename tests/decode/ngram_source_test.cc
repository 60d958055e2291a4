// Prompt look-up against the obvious search.
#include "decode/ngram_source.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/memory_budget.h"
#include "base/random.h"

namespace kakeya::test {
namespace {

using Tokens = std::vector<TokenId>;

struct Found {
  std::size_t length = 0;
  std::size_t next = 0;  // index of what followed
};

// The longest suffix that also ends earlier; of several places the last.
Found find_obviously(const Tokens& tokens) {
  Found best;
  for (std::size_t end = tokens.size() - 1; end >= 4; --end) {
    std::size_t length = 0;
    while (length < std::min<std::size_t>(end, 32) &&
           tokens[end - 1 - length] == tokens[tokens.size() - 1 - length]) {
      ++length;
    }
    if (length >= 4 && length > best.length) best = {length, end};
  }
  return best;
}

Tokens continue_obviously(Tokens tokens, std::size_t next, std::size_t count) {
  const std::size_t size = tokens.size();
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(tokens[next + i]);
  return {tokens.begin() + static_cast<std::ptrdiff_t>(size), tokens.end()};
}

class NgramSourceTest : public testing::Test {
 protected:
  Tokens draft(DraftSource& source, const Tokens& tokens, std::size_t count) {
    Tokens out(count, -1);
    EXPECT_TRUE(source.draft(tokens, sampler_, out).has_value());
    return out;
  }

  MemoryBudget budget_;
  Sampler sampler_ = Sampler::create(4, budget_).value();
};

TEST_F(NgramSourceTest, FindsWhatTheObviousSearchFinds) {
  SequenceRng rng(1);
  int matches = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const std::uint64_t alphabet = 1 + rng.below(6);
    Tokens tokens(1 + rng.below(200));
    for (TokenId& token : tokens) token = static_cast<TokenId>(rng.below(alphabet));
    // Long matches are rare by chance: repeat a piece now and then.
    if (rng.below(2) == 0 && tokens.size() > 4) {
      const std::size_t begin = rng.below(tokens.size() - 2);
      const std::size_t count = 1 + rng.below(tokens.size() - begin);
      for (std::size_t i = 0; i < count; ++i) tokens.push_back(tokens[begin + i]);
    }
    NgramSource source(15);
    const Found expected = find_obviously(tokens);
    ASSERT_EQ(NgramSource::match_length(tokens), expected.length) << "trial " << trial;
    const DraftOffer offer = source.offer(tokens, sampler_);
    ASSERT_EQ(offer.length, expected.length == 0 ? 0 : 15);
    if (expected.length == 0) continue;
    ++matches;
    ASSERT_EQ(offer.kind, DraftKind::kNgram);
    const std::size_t count = 1 + rng.below(15);
    ASSERT_EQ(draft(source, tokens, count), continue_obviously(tokens, expected.next, count))
        << "trial " << trial;
  }
  EXPECT_GT(matches, 10000);
}

TEST_F(NgramSourceTest, OffersNothingWhereLessThanFourTokensStoodBefore) {
  NgramSource source(8);
  EXPECT_EQ(source.offer(Tokens{1}, sampler_).length, 0);
  EXPECT_EQ(source.offer(Tokens{1, 2}, sampler_).length, 0);
  EXPECT_EQ(source.offer(Tokens{1, 1}, sampler_).length, 0);
  EXPECT_EQ(source.offer(Tokens{1, 2, 3, 9, 1, 2, 3}, sampler_).length, 0);
  EXPECT_EQ(source.offer(Tokens{1, 2, 3, 4, 9, 1, 2, 3, 4}, sampler_).length, 8);
  Tokens distinct;
  for (TokenId id = 0; id < 500; ++id) distinct.push_back(id);
  EXPECT_EQ(source.offer(distinct, sampler_).length, 0);
}

TEST_F(NgramSourceTest, ContinuesAPeriod) {
  NgramSource source(10);
  const Tokens tokens = {9, 1, 2, 3, 1, 2, 3, 1, 2};
  EXPECT_EQ(source.offer(tokens, sampler_).length, 10);
  EXPECT_EQ(draft(source, tokens, 10), (Tokens{3, 1, 2, 3, 1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(source.offer(Tokens{7, 7, 7, 7, 7}, sampler_).length, 10);
  EXPECT_EQ(draft(source, {7, 7, 7, 7, 7}, 4), (Tokens{7, 7, 7, 7}));
}

TEST_F(NgramSourceTest, FillsLessThanItOffered) {
  NgramSource source(63);
  const Tokens tokens = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4};
  EXPECT_EQ(source.offer(tokens, sampler_).length, 63);
  EXPECT_EQ(draft(source, tokens, 1), (Tokens{5}));
  EXPECT_EQ(draft(source, tokens, 0), Tokens());
}

TEST_F(NgramSourceTest, SearchesTheLastTokensOnly) {
  Tokens tokens = {1, 2, 3, 4, 5};
  for (TokenId id = 10; std::ssize(tokens) < NgramSource::kWindow - 4; ++id) tokens.push_back(id);
  tokens.insert(tokens.end(), {1, 2, 3, 4});
  ASSERT_EQ(std::ssize(tokens), NgramSource::kWindow);
  EXPECT_EQ(NgramSource::match_length(tokens), 4);
  tokens.insert(tokens.begin() + 5, 6);  // now the first token lies outside
  EXPECT_EQ(NgramSource::match_length(tokens), 0);
}

TEST_F(NgramSourceTest, TellsLongMatchesFromShortOnes) {
  NgramSource ngram(6);
  Tokens tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_FALSE(ngram.offer(tokens, sampler_).long_match);
  tokens.push_back(8);
  EXPECT_TRUE(ngram.offer(tokens, sampler_).long_match);
}

}  // namespace
}  // namespace kakeya::test
