#include "text/stop_strings.h"

#include "property.h"
#include "text/text_test_util.h"

namespace kakeya {
namespace {

StopStringMatcher make(const std::vector<std::string>& stop_strings) {
  auto matcher = StopStringMatcher::create(stop_strings);
  if (!matcher) throw std::runtime_error(matcher.error().message());
  return std::move(*matcher);
}

// The definition, on the whole text: cut at the stop string that ends first, the longest of those.
std::pair<std::string, bool> cut(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop)) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

TEST(StopStrings, FindsAStopStringAcrossEveryBorder) {
  const std::string text = "Hello wörld</s> and more";
  const std::vector<std::string> stops = {"</s>", "<end>"};
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (std::size_t second = first; second <= text.size(); ++second) {
      StopStringMatcher matcher = make(stops);
      std::string out;
      bool stopped = false;
      for (const auto& piece :
           {text.substr(0, first), text.substr(first, second - first), text.substr(second)}) {
        stopped = matcher.feed(piece, out);
      }
      EXPECT_TRUE(stopped);
      EXPECT_EQ(matcher.found(), 0u);
      matcher.flush(out);
      EXPECT_EQ(out, "Hello wörld");
    }
  }
}

TEST(StopStrings, AgreesWithTheDefinitionOnRandomTexts) {
  // Two letters, so that stop strings overlap one another and the text.
  const auto words = [](int most) {
    return rc::gen::nonEmpty(
        rc::gen::resize(most, rc::gen::container<std::string>(rc::gen::element('a', 'b'))));
  };
  test::expect_property("a text in pieces is cut where the whole is", [&] {
    const auto stops = *rc::gen::resize(4, rc::gen::container<std::vector<std::string>>(words(5)));
    const auto pieces = *rc::gen::resize(8, rc::gen::container<std::vector<std::string>>(words(4)));
    StopStringMatcher matcher = make(stops);
    std::string text;
    std::string out;
    bool stopped = false;
    for (const std::string& piece : pieces) {
      text += piece;
      stopped = matcher.feed(piece, out);
    }
    if (!stopped) matcher.flush(out);
    RC_ASSERT(std::pair(out, stopped) == cut(text, stops));
  });
}

TEST(StopStrings, HoldsBackOnlyWhatMayBeginAStopString) {
  StopStringMatcher matcher = make({"\n\nUser:"});
  std::string out;
  EXPECT_FALSE(matcher.feed("Fine.\n", out));
  EXPECT_EQ(out, "Fine.");
  EXPECT_FALSE(matcher.feed("\nUs", out));
  EXPECT_EQ(out, "Fine.");
  EXPECT_FALSE(matcher.feed("ing", out));
  EXPECT_EQ(out, "Fine.\n\nUsing");
  EXPECT_FALSE(matcher.feed("\n\nUser", out));
  matcher.flush(out);
  EXPECT_EQ(out, "Fine.\n\nUsing\n\nUser");
}

TEST(StopStrings, IgnoresTextAfterTheStopUntilItIsReset) {
  StopStringMatcher matcher = make({"x"});
  std::string out;
  EXPECT_TRUE(matcher.feed("axb", out));
  EXPECT_TRUE(matcher.feed("c", out));
  EXPECT_EQ(out, "a");
  matcher.reset();
  EXPECT_FALSE(matcher.feed("c", out));
  EXPECT_EQ(out, "ac");
}

TEST(StopStrings, RejectsStringsThatCannotBeMatched) {
  EXPECT_FALSE(StopStringMatcher::create({""}));
  EXPECT_FALSE(StopStringMatcher::create({std::string(5000, 'a')}));
  EXPECT_FALSE(StopStringMatcher::create(std::vector<std::string>(65, "a")));
  EXPECT_TRUE(StopStringMatcher::create({}));
}

}  // namespace
}  // namespace kakeya
