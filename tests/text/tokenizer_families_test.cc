// Small tokenizers of the published families against the `tokenizers` package
// (tests/data/tokenizers/families/make_goldens.py), and components that are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "text/text_test_util.h"

namespace kakeya {
namespace {

using testing::HasSubstr;
using Ids = std::vector<TokenId>;
using Edit = std::function<void(nlohmann::json&)>;

std::string family_path(const std::string& name) {
  return data_path("tokenizers/families/" + name + ".json");
}

class TokenizerFamilies : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerFamilies, AreThoseOfTheLibrary) {
  const Tokenizer tokenizer = load_tokenizer(family_path(GetParam()));
  const auto golden = read_json_file(family_path(std::string(GetParam()) + "_cases"));
  EXPECT_GE(golden["cases"].size(), 80u);
  for (const auto& item : golden["cases"]) {
    const auto ids = item["ids"].get<Ids>();
    if (!item["text"].is_null()) {
      EXPECT_EQ(tokenizer.encode(item["text"].get<std::string>()).value(), ids) << item["text"];
    }
    EXPECT_EQ(tokenizer.decode(ids, false), item["decoded"].get<std::string>()) << item;
    if (item.contains("decoded_without_special")) {
      EXPECT_EQ(tokenizer.decode(ids), item["decoded_without_special"].get<std::string>()) << item;
    }
    for (const bool skip : {false, true}) {
      StreamDecoder decoder(tokenizer, skip);
      std::string streamed;
      for (const TokenId id : ids) streamed += decoder.push(id);
      EXPECT_EQ(streamed + decoder.finish(), tokenizer.decode(ids, skip));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All,
    TokenizerFamilies,
    testing::Values("llama2", "llama2_normalized", "mistral", "gemma3", "llama3", "smollm"),
    [](const auto& each) { return std::string(each.param); });

std::string refusal_of_family(const std::string& name, const Edit& edit) {
  auto root = read_json_file(family_path(name));
  edit(root);
  const auto tokenizer = Tokenizer::parse(root.dump());
  if (tokenizer) return "";
  EXPECT_EQ(tokenizer.error().code(), StatusCode::kUnimplemented) << tokenizer.error().message();
  return tokenizer.error().message();
}

TEST(TokenizerFamilyParts, OthersAreRefusedByName) {
  const auto set = [](const char* pointer, const nlohmann::json& value) {
    return [=](nlohmann::json& root) { root[nlohmann::json::json_pointer(pointer)] = value; };
  };
  EXPECT_EQ(refusal_of_family("llama2", [](auto&) {}), "");
  EXPECT_THAT(refusal_of_family("llama2", set("/normalizer/normalizers/0/type", "Lowercase")),
              HasSubstr("normalizer 'Lowercase'"));
  EXPECT_THAT(
      refusal_of_family("smollm", set("/pre_tokenizer/pretokenizers/0/type", "Punctuation")),
      HasSubstr("pre_tokenizer 'Punctuation'"));
  EXPECT_THAT(refusal_of_family("mistral", set("/pre_tokenizer/replacement", "__")),
              HasSubstr("Metaspace without one character"));
  EXPECT_THAT(refusal_of_family("mistral", set("/pre_tokenizer/prepend_scheme", "last")),
              HasSubstr("prepend_scheme 'last'"));
  EXPECT_THAT(
      refusal_of_family(
          "mistral",
          [](auto& root) {
            const auto alone = root["pre_tokenizer"];
            root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {alone, alone}}};
          }),
      HasSubstr("Sequence with Metaspace"));
  EXPECT_THAT(refusal_of_family("llama2", set("/decoder/decoders/3/content", "_")),
              HasSubstr("Strip of anything but spaces"));
  EXPECT_THAT(refusal_of_family("llama2", set("/decoder/decoders/3/stop", 1)),
              HasSubstr("Strip at the end"));
  EXPECT_THAT(refusal_of_family("llama2", set("/decoder/decoders/2/type", "Strip")),
              HasSubstr("another order than Replace, ByteFallback, Fuse, Strip"));
  EXPECT_THAT(refusal_of_family("llama3", set("/post_processor/processors/0/type", "Roberta")),
              HasSubstr("post_processor 'Roberta'"));
  EXPECT_THAT(refusal_of_family("llama3", set("/added_tokens/0/lstrip", true)),
              HasSubstr("added token option 'lstrip'"));
}

TEST(TokenizerFamilyParts, PostProcessorsSayWhatBeginsTexts) {
  for (const char* name : {"llama2", "mistral", "gemma3", "llama3"}) {
    EXPECT_TRUE(load_tokenizer(family_path(name)).begins_texts()) << name;
  }
  EXPECT_FALSE(load_tokenizer(family_path("smollm")).begins_texts());
}

// A word that is a token stays whole, but none that is special: a text that must not spell control
// tokens could.
TEST(TokenizerFamilyParts, WordsThatAreSpecialTokensAreNotKeptWhole) {
  auto root = read_json_file(family_path("llama3"));
  root["added_tokens"][0]["content"] = "unlikely";
  const auto tokenizer = Tokenizer::parse(root.dump());
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message();
  EXPECT_EQ(tokenizer->encode("unlikely").value().size(), 1u);
  EXPECT_GT(tokenizer->encode("unlikely", {.parse_special = false}).value().size(), 1u);
}

}  // namespace
}  // namespace kakeya
