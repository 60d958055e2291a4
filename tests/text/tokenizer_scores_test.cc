// Tokenizers of GGUF files that have scores in place of merges ("llama"), and what goes in front of
// their texts.
#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <limits>
#include <vector>

#include "base/status.h"
#include "formats/gguf_write.h"
#include "formats/scratch_files.h"
#include "formats/text_ends.h"
#include "kakeya/tokenizer.h"
#include "text/text_test_util.h"
#include "text/tokenizer_gguf.h"

namespace kakeya {
namespace {

using testing::HasSubstr;
using Ids = std::vector<TokenId>;

constexpr std::int32_t kNormalType = 1;
constexpr std::int32_t kUnknownType = 2;
constexpr std::int32_t kControlType = 3;
constexpr std::int32_t kUserDefinedType = 4;
constexpr std::int32_t kUnusedType = 5;
constexpr std::int32_t kByteType = 6;

struct ScoredToken {
  std::string text;
  float score = 0;
  std::int32_t type = kNormalType;
};

struct Scored {
  std::vector<ScoredToken> tokens;
  std::vector<GgufMetadata> more = {};
  std::string model = "llama";
  std::string architecture = "llama";

  // Adds the 256 tokens of bytes behind the others.
  Scored& with_bytes() {
    for (int byte = 0; byte < 256; ++byte) {
      tokens.push_back({fmt::format("<0x{:02X}>", byte), 0, kByteType});
    }
    return *this;
  }

  std::vector<GgufMetadata> metadata() const {
    std::vector<std::string> texts;
    std::vector<float> scores;
    std::vector<std::int32_t> types;
    for (const ScoredToken& token : tokens) {
      texts.push_back(token.text);
      scores.push_back(token.score);
      types.push_back(token.type);
    }
    std::vector<GgufMetadata> all = {{"general.architecture", architecture},
                                     {"tokenizer.ggml.model", model},
                                     {"tokenizer.ggml.tokens", texts},
                                     {"tokenizer.ggml.scores", scores},
                                     {"tokenizer.ggml.token_type", types}};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

const GgufMetadata kNoPrefix = {"tokenizer.ggml.add_space_prefix", false};

Result<Tokenizer> load_scored(const std::vector<GgufMetadata>& metadata) {
  const ScratchFolder scratch;
  const std::string path = scratch.path("t.gguf");
  EXPECT_TRUE(write_gguf(path, metadata, {}).has_value());
  return Tokenizer::load(path);
}

Tokenizer scored(const Scored& written) {
  auto tokenizer = load_scored(written.metadata());
  if (!tokenizer) throw std::runtime_error(tokenizer.error().message());
  return std::move(*tokenizer);
}

Result<Tokenizer> scored_through_json(const Scored& written) {
  const ScratchFolder scratch;
  const std::string path = scratch.path("t.gguf");
  EXPECT_TRUE(write_gguf(path, written.metadata(), {}).has_value());
  KAKEYA_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
  KAKEYA_ASSIGN_OR_RETURN(const std::string through, gguf_tokenizer_json(file));
  return Tokenizer::parse(through);
}

TEST(TokenizerScores, TheBestScoreMergesFirst) {
  const Scored written = {
      .tokens = {{"a"}, {"b"}, {"c"}, {"ab", -2}, {"bc", -1}, {"abc", -3}, {"ca", -1}},
      .more = {kNoPrefix}};
  const Tokenizer tokenizer = scored(written);
  EXPECT_EQ(tokenizer.encode("ab").value(), (Ids{3}));
  EXPECT_EQ(tokenizer.encode("abc").value(), (Ids{5}));  // a bc
  EXPECT_EQ(tokenizer.encode("abcb").value(), (Ids{5, 1}));
  // Equal scores: the leftmost goes first, bc a, not b ca.
  EXPECT_EQ(tokenizer.encode("bca").value(), (Ids{4, 0}));
  EXPECT_EQ(tokenizer.encode("bcabca").value(), (Ids{4, 5, 0}));
}

// The splits of a token share its rank, whatever their order in a list of merges would be.
TEST(TokenizerScores, SplitsOfATokenShareItsRank) {
  const Scored written = {.tokens = {{"a"}, {"b"}, {"aa", -1}, {"aaa", -2}, {"ba", 0}},
                          .more = {kNoPrefix}};
  const Tokenizer tokenizer = scored(written);
  EXPECT_EQ(tokenizer.encode("aaa").value(), (Ids{3}));
  EXPECT_EQ(tokenizer.encode("aaaa").value(), (Ids{2, 2}));
  EXPECT_EQ(tokenizer.encode("aaaaa").value(), (Ids{2, 3}));
  EXPECT_EQ(tokenizer.encode("baaa").value(), (Ids{4, 2}));
}

TEST(TokenizerScores, OnlyNormalTokensAndTheUsersAreMade) {
  const Scored written = {.tokens = {{"a"},
                                     {"b"},
                                     {"ab", 9, kControlType},
                                     {"ba", 9, kUnusedType},
                                     {"x", 0, kUnusedType},
                                     {"<unk>", 0, kUnknownType},
                                     {"bb", 1, kUserDefinedType}},
                          .more = {kNoPrefix, {"tokenizer.ggml.unknown_token_id", 5U}}};
  const Tokenizer tokenizer = scored(written);
  EXPECT_EQ(tokenizer.encode("aba", {.parse_special = false}).value(), (Ids{0, 1, 0}));
  EXPECT_EQ(tokenizer.encode("aba").value(), (Ids{2, 0}));
  EXPECT_EQ(tokenizer.encode("abba", {.parse_special = false}).value(), (Ids{0, 6, 0}));
  EXPECT_EQ(tokenizer.encode("axa").value(), (Ids{0, 5, 0})) << "an unused character is no token";
}

TEST(TokenizerScores, WhatIsNoTokenBecomesItsBytes) {
  Scored written = {.tokens = {{"<unk>", 0, kUnknownType}, {"a"}},
                    .more = {kNoPrefix, {"tokenizer.ggml.unknown_token_id", 0U}}};
  EXPECT_EQ(scored(written).encode("a\u00E9a").value(), (Ids{1, 0, 1}));
  const Tokenizer tokenizer = scored(written.with_bytes());
  EXPECT_EQ(tokenizer.encode("a\u00E9\n").value(), (Ids{1, 2 + 0xC3, 2 + 0xA9, 2 + 0x0A}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\u00E9\n").value()), "a\u00E9\n");
}

TEST(TokenizerScores, RunsOfTheUserAreTheLongestFirst) {
  Scored written = {.tokens = {{"\u2581"}, {"\u2581\u2581", -1}}, .more = {kNoPrefix}};
  for (std::size_t run = 2; run <= 31; ++run) {
    written.tokens.push_back({std::string(run, ' '), -1000, kUserDefinedType});
  }
  const Tokenizer tokenizer = scored(written);
  EXPECT_EQ(tokenizer.encode(std::string(40, ' ')).value(), (Ids{31, 9}));
  EXPECT_EQ(tokenizer.encode(" ").value(), (Ids{0}));
  EXPECT_FALSE(tokenizer.is_special(31));
  EXPECT_EQ(tokenizer.encode(std::string(32, ' '), {.parse_special = false}).value(), (Ids{31, 0}));
}

Scored llama2_style() {
  return Scored{
      .tokens = {{"<unk>", 0, kUnknownType},
                 {"<s>", 0, kControlType},
                 {"</s>", 0, kControlType},
                 {"\u2581", -9},
                 {"a", -9},
                 {"\u2581a", -1},
                 {"<tag>", 0, kUserDefinedType}},
      .more = {{"tokenizer.ggml.unknown_token_id", 0U}, {"tokenizer.ggml.bos_token_id", 1U}}}
      .with_bytes();
}

TEST(TokenizerScores, ASpaceGoesInFrontOfATextAndBehindAddedTokens) {
  const Tokenizer tokenizer = scored(llama2_style());
  const auto through = scored_through_json(llama2_style());
  ASSERT_TRUE(through.has_value()) << through.error().message();
  const std::vector<std::pair<std::string, Ids>> cases = {
      {"", {}},         {"a", {5}},
      {" a", {3, 5}},   {"a a", {5, 5}},
      {"<s>a", {1, 5}}, {"a<s> a</s>", {5, 1, 3, 5, 2}},
      {"<s>", {1}},     {"a<tag>a", {5, 6, 5}},
      {"  ", {3, 3, 3}}};
  for (const auto& [text, ids] : cases) {
    EXPECT_EQ(tokenizer.encode(text).value(), ids) << text;
    EXPECT_EQ(through->encode(text).value(), ids) << text;
  }
  EXPECT_TRUE(through->begins_texts());
}

TEST(TokenizerScores, DecodingLeavesTheFirstSpaceOut) {
  const Tokenizer tokenizer = scored(llama2_style());
  constexpr TokenId kByteTokens = 7;
  const std::vector<std::pair<Ids, std::string>> cases = {
      {{}, ""},
      {{5, 5}, "a a"},
      {{3, 5}, " a"},
      {{3}, ""},
      {{3, 3}, " "},
      {{4, 3}, "a "},
      {{1, 5, 2}, "a"},
      {{kByteTokens + 0x20, 5}, " a"},
      {{kByteTokens + 0xC3, kByteTokens + 0xA9, 5}, "\u00E9 a"}};
  for (const auto& [ids, text] : cases) {
    EXPECT_EQ(tokenizer.decode(ids), text);
    StreamDecoder decoder(tokenizer);
    for (int round = 0; round < 2; ++round) {  // the second is as new
      std::string streamed;
      for (const TokenId id : ids) streamed += decoder.push(id);
      EXPECT_EQ(streamed + decoder.finish(), text);
    }
  }
  EXPECT_EQ(tokenizer.decode(Ids{1, 5}, false), "<s> a");
  // Ids that go on with a text keep its space.
  EXPECT_EQ(tokenizer.decode(Ids{5}, true, false), " a");
  EXPECT_EQ(StreamDecoder(tokenizer, true, false).push(5), " a");
}

TEST(TokenizerScores, EndsAreThoseOfTheArchitecture) {
  Scored written = {.tokens = {{"a"}, {"</s>"}, {"<end_of_turn>"}}, .more = {kNoPrefix}};
  EXPECT_TRUE(scored(written).is_special(1));
  EXPECT_FALSE(scored(written).is_special(2));
  written.architecture = "gemma3";
  EXPECT_FALSE(scored(written).is_special(1));
  EXPECT_TRUE(scored(written).is_special(2));
}

std::string refusal_of_scored(const std::function<void(Scored&)>& change) {
  Scored written = {.tokens = {{"a"}, {"b"}, {"ab", -1}}};
  EXPECT_TRUE(load_scored(written.metadata()).has_value());
  change(written);
  return error_naming("t.gguf", load_scored(written.metadata())).message();
}

TEST(TokenizerScores, BrokenScoresAreRefused) {
  const auto with = [](const char* key, GgufMetadataValue value) {
    return [=](Scored& it) { it.more.push_back({key, value}); };
  };
  EXPECT_THAT(refusal_of_scored(
                  [](Scored& it) { it.tokens[1].score = std::numeric_limits<float>::quiet_NaN(); }),
              HasSubstr("tokenizer.ggml.scores: element 1"));
  EXPECT_THAT(refusal_of_scored(
                  [](Scored& it) { it.tokens[2].score = std::numeric_limits<float>::infinity(); }),
              HasSubstr("tokenizer.ggml.scores: element 2"));
  EXPECT_THAT(refusal_of_scored([](Scored& it) { it.tokens[2].text = std::string(600, 'a'); }),
              HasSubstr("token 2: expected at most 512 bytes beside a score, got 600"));
  EXPECT_THAT(refusal_of_scored(with("tokenizer.ggml.remove_extra_whitespaces", true)),
              HasSubstr("remove_extra_whitespaces: what it stands for is not supported"));
  EXPECT_THAT(refusal_of_scored(with("tokenizer.ggml.unknown_token_id", 3U)),
              HasSubstr("tokenizer.ggml.unknown_token_id"));
  std::vector<GgufMetadata> metadata = Scored{.tokens = {{"a"}, {"b"}, {"ab", -1}}}.metadata();
  metadata[3].value = std::vector<float>{0, 0};
  EXPECT_THAT(message_of(load_scored(metadata)),
              HasSubstr("expected 3 scores, one a token, got 2"));
  metadata.erase(metadata.begin() + 3);
  EXPECT_THAT(message_of(load_scored(metadata)), HasSubstr("tokenizer.ggml.scores"));
}

// All runs of letters up to the longest: a vocabulary of the most merges a byte.
TEST(TokenizerScores, VocabulariesAndTextsOfRunsTakeLittleTime) {
  Scored written = {.tokens = {}, .more = {kNoPrefix}};
  for (const char letter : {'a', 'b', 'c', 'd'}) {
    for (std::size_t run = 1; run <= 512; ++run) {
      written.tokens.push_back({std::string(run, letter), -static_cast<float>(run)});
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  const Tokenizer tokenizer = scored(written);
  const auto ids = tokenizer.encode(std::string(1 << 20, 'a')).value();
  EXPECT_EQ(tokenizer.decode(ids), std::string(1 << 20, 'a'));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(TokenizerScores, MoreMergesThanAnyVocabularyHasAreRefused) {
  Scored written = {.tokens = {}};
  for (char letter = 'a'; letter < 'a' + 26; ++letter) {
    for (std::size_t run = 1; run <= 512; ++run) {
      written.tokens.push_back({std::string(run, letter)});
    }
  }
  for (char letter = 'A'; letter < 'A' + 26; ++letter) {
    for (std::size_t run = 1; run <= 512; ++run) {
      written.tokens.push_back({std::string(run, letter)});
    }
  }
  EXPECT_THAT(message_of(load_scored(written.metadata())), HasSubstr("merges, got more"));
}

TEST(GgufBeginsTexts, IsSaidByTheKeyOrTheKind) {
  const ScratchFolder scratch;
  const std::string path = scratch.path("t.gguf");
  const auto begins = [&](const std::string& model, const std::string& pre, int key) {
    std::vector<GgufMetadata> metadata = {{"general.architecture", std::string("llama")},
                                          {"tokenizer.ggml.model", model},
                                          {"tokenizer.ggml.pre", pre}};
    if (key >= 0) metadata.push_back({"tokenizer.ggml.add_bos_token", key == 1});
    EXPECT_TRUE(write_gguf(path, metadata, {}).has_value());
    return gguf_begins_texts(GgufFile::open(path).value()).value();
  };
  EXPECT_TRUE(begins("llama", "default", -1));
  EXPECT_FALSE(begins("llama", "default", 0));
  EXPECT_FALSE(begins("gpt2", "smollm", -1));
  EXPECT_TRUE(begins("gpt2", "smollm", 1));
  EXPECT_TRUE(begins("gpt2", "llama-bpe", -1));
  EXPECT_FALSE(begins("gpt2", "llama3", 0));
  EXPECT_TRUE(begins("gemma4", "", -1));
}

}  // namespace
}  // namespace kakeya
