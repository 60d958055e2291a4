// Tokenizers of published GGUF files against what two references say of them
// (tests/data/real/README.md), and through a tokenizer.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "real_models.h"
#include "text/text_test_util.h"
#include "text/tokenizer_gguf.h"

namespace kakeya {
namespace {

using Ids = std::vector<TokenId>;

std::string streamed_text(const Tokenizer& tokenizer, const Ids& ids) {
  StreamDecoder decoder(tokenizer, false);
  std::string text;
  for (const TokenId id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

// `text` has these ids and comes back; the mark that spaces are written with comes back as one.
void expect_text(const Tokenizer& tokenizer, std::string text, const Ids& ids) {
  constexpr std::string_view kMark = "\u2581";
  EXPECT_EQ(tokenizer.encode(text).value(), ids) << text;
  const bool marked = tokenizer.token_id(kMark).has_value();
  for (std::size_t at = text.find(kMark); marked && at != std::string::npos;
       at = text.find(kMark)) {
    text.replace(at, kMark.size(), " ");
  }
  EXPECT_EQ(tokenizer.decode(ids, false), text);
  EXPECT_EQ(streamed_text(tokenizer, ids), text);
}

void expect_golden(const Tokenizer& tokenizer, const nlohmann::json& golden) {
  for (const auto& item : golden["texts"]) {
    expect_text(tokenizer, item["text"], item["ids"].get<Ids>());
  }
  // Runs of blanks that are tokens are the longest first.
  for (const auto& item : golden["references_disagree"]) {
    expect_text(tokenizer, item["text"], item["llama_cpp"].get<Ids>());
  }
}

// Its tokenizer, written as a tokenizer.json and read again.
Result<Tokenizer> through_json(const RealModel& model) {
  KAKEYA_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(real_model_path(model)));
  KAKEYA_ASSIGN_OR_RETURN(const std::string written, gguf_tokenizer_json(file));
  return Tokenizer::parse(written);
}

TEST(RealTokenizers, SmolLm2IsThatOfTheReferences) {
  KAKEYA_NEED_REAL_MODEL(kRealSmolLm2);
  const Tokenizer tokenizer = load_tokenizer(real_model_path(kRealSmolLm2));
  const auto golden = real_golden("smollm2-tokens.json");
  EXPECT_EQ(golden["texts"].size(), 200u);
  expect_golden(tokenizer, golden);
  for (const auto& each : real_golden("smollm2-chat.json")["conversations"]) {
    expect_text(tokenizer, each["text"], each["ids"].get<Ids>());
  }
}

TEST(RealTokenizers, Gemma3IsThatOfTheReferences) {
  KAKEYA_NEED_REAL_MODEL(kRealGemma3);
  const Tokenizer tokenizer = load_tokenizer(real_model_path(kRealGemma3));
  const auto golden = real_golden("gemma3-270m-tokens.json");
  EXPECT_EQ(golden["texts"].size(), 198u);
  EXPECT_EQ(golden["references_disagree"].size(), 2u);
  expect_golden(tokenizer, golden);
  EXPECT_EQ(tokenizer.encode(std::string(40, ' ')).value().size(), 2u);  // 31 and 9
  EXPECT_FALSE(tokenizer.is_special(212)) << "an HTML tag";
}

TEST(RealTokenizers, SmolLm2GivesTheSameIdsThroughATokenizerJson) {
  KAKEYA_NEED_REAL_MODEL(kRealSmolLm2);
  const auto tokenizer = through_json(kRealSmolLm2);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message();
  expect_golden(*tokenizer, real_golden("smollm2-tokens.json"));
}

TEST(RealTokenizers, Gemma3GivesTheSameIdsThroughATokenizerJson) {
  KAKEYA_NEED_REAL_MODEL(kRealGemma3);
  const auto tokenizer = through_json(kRealGemma3);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message();
  expect_golden(*tokenizer, real_golden("gemma3-270m-tokens.json"));
}

}  // namespace
}  // namespace kakeya
