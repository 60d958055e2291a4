// Answers that end by their lines, token by token.
#include "service/line_limits.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace kakeya::service {
namespace {

// The text of an answer of these tokens, and "|" where it has ended.
std::string cut_text(const std::vector<std::string>& tokens, const LineLimits& limits) {
  LineGuard guard(limits);
  std::string text;
  for (const std::string& token : tokens) {
    const std::size_t before = text.size();
    text += token;
    if (guard.push(text, before)) return text + "|";
  }
  return text;
}

TEST(LineGuard, EndsBeforeALineThatIsIndentedLess) {
  const LineLimits limits = {.least_indent = 2};
  EXPECT_EQ(cut_text({"a;\n  b;\n", "  ", " c;", "\n }", "d"}, limits), "a;\n  b;\n   c;\n |");
  EXPECT_EQ(cut_text({"a", "\n", " ", "\tb", "\n", "\n", "c"}, limits), "a\n \tb\n|");
  EXPECT_EQ(cut_text({"a", "b"}, limits), "ab") << "the first line stands behind the cursor";
  EXPECT_EQ(cut_text({"a\nb\n\nc"}, {.least_indent = 0, .most_seconds = 1e6}), "a\nb\n\nc");
}

TEST(LineGuard, EndsByTimeOnceThereIsALineEnd) {
  LineGuard guard({.least_indent = 0, .most_seconds = 1e-3});
  std::string text = "a";
  EXPECT_FALSE(guard.push(text, 0));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  text += "b";
  EXPECT_FALSE(guard.push(text, 1));
  text += "\n";
  EXPECT_TRUE(guard.push(text, 2));
  EXPECT_EQ(text, "ab\n");
}

}  // namespace
}  // namespace kakeya::service
