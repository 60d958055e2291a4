// The words that a hostile tokenizer.json can make an error say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kakeya/tokenizer.h"

namespace kakeya {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Two letters and the word of both.
json two_letters() {
  return json::parse(R"({"decoder": {"type": "Fuse"},
    "model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}})");
}

// Errors that quote texts of the file are one line that no terminal obeys.
TEST(TokenizerMessages, ErrorsQuoteNoControlCharactersAndNoMegabytes) {
  const std::string nasty = "\n\x1b[2J\u009b" + std::string(3'000'000, 'x');
  std::vector<json> files(7, two_letters());
  files[0]["model"]["vocab"][nasty] = -1;
  files[1]["model"]["vocab"][nasty] = 1;
  files[2]["model"]["merges"] = json::array({json::array({"a", nasty})});
  files[3]["model"]["merges"] = json::array({nasty + " a b"});
  files[4]["model"]["unk_token"] = nasty;
  files[5]["normalizer"] = {{"type", nasty}};
  files[6]["added_tokens"] = json::array({json{{"id", -1}, {"content", nasty.substr(0, 900)}}});
  for (const json& file : files) {
    const auto tokenizer = Tokenizer::parse(file.dump());
    ASSERT_FALSE(tokenizer.has_value());
    const std::string& message = tokenizer.error().message();
    EXPECT_THAT(message, HasSubstr(R"(\x0a\x1b[2J\xc2\x9bxxx)"));
    EXPECT_LT(message.size(), 600U);
    EXPECT_TRUE(std::all_of(message.begin(), message.end(), [](char c) {
      return c >= ' ' && c <= '~';
    })) << message.substr(0, 100);
  }
}

}  // namespace
}  // namespace kakeya
