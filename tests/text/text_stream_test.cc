#include "kakeya/text_stream.h"

#include <gtest/gtest.h>

#include "text/text_test_util.h"

namespace kakeya {
namespace {

TextStream make(const Tokenizer& tokenizer, const std::vector<std::string>& stops = {}) {
  auto stream = TextStream::create(tokenizer, stops);
  if (!stream) throw std::runtime_error(stream.error().message());
  return std::move(*stream);
}

// The pieces of a text's tokens, that of finish() last.
std::vector<std::string> pieces_of(TextStream& stream, const std::vector<TokenId>& ids) {
  std::vector<std::string> pieces;
  for (const TokenId id : ids) stream.push(id, pieces.emplace_back());
  stream.finish(pieces.emplace_back());
  return pieces;
}

std::string together(const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

TEST(TextStream, PiecesAreWholeCharactersAndTogetherTheText) {
  const Tokenizer tokenizer = demo_tokenizer();
  const std::string text = "Zwölf Boxkämpfer, 漢字 and 🦊, jagen.";
  const std::vector<TokenId> ids = tokenizer.encode(text).value();
  TextStream stream = make(tokenizer);
  const std::vector<std::string> pieces = pieces_of(stream, ids);
  EXPECT_EQ(together(pieces), tokenizer.decode(ids));
  for (const std::string& piece : pieces) EXPECT_TRUE(is_valid_utf8(piece)) << piece;
  EXPECT_FALSE(stream.stopped_by().has_value());
}

TEST(TextStream, EndsAtAStopStringAndNeverGaveAnyOfItOut) {
  const Tokenizer tokenizer = demo_tokenizer();
  const std::vector<TokenId> ids = tokenizer.encode("one two three four").value();
  TextStream stream = make(tokenizer, {"never", "two three"});
  EXPECT_EQ(together(pieces_of(stream, ids)), "one ");
  EXPECT_EQ(stream.stopped_by(), 1u);
}

TEST(TextStream, SaysOnceThatItHasStoppedAndIgnoresTheRest) {
  const Tokenizer tokenizer = demo_tokenizer();
  TextStream stream = make(tokenizer, {"two"});
  std::string text;
  const std::vector<TokenId> ids = tokenizer.encode("one two").value();
  for (const TokenId id : ids) stream.push(id, text);
  EXPECT_TRUE(stream.push(tokenizer.encode(" more").value().front(), text));
  EXPECT_TRUE(stream.finish(text));
  EXPECT_EQ(text, "one ");
}

TEST(TextStream, GivesOutWhatOnlyBeganAStopStringWhenTheTextEnds) {
  const Tokenizer tokenizer = demo_tokenizer();
  TextStream stream = make(tokenizer, {"three times"});
  std::string text;
  const std::vector<TokenId> ids = tokenizer.encode("one three").value();
  for (const TokenId id : ids) EXPECT_FALSE(stream.push(id, text));
  EXPECT_EQ(text, "one ");
  EXPECT_FALSE(stream.finish(text));
  EXPECT_EQ(text, "one three");
}

TEST(TextStream, RefusesAnEmptyStopString) {
  const Tokenizer tokenizer = demo_tokenizer();
  const auto stream = TextStream::create(tokenizer, {""});
  ASSERT_FALSE(stream.has_value());
  EXPECT_EQ(stream.error().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kakeya
