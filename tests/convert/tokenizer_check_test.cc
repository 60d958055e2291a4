// A GGUF file names its tokenizer: one that reads texts otherwise is not written under that name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "convert/gguf_metadata.h"
#include "convert/tiny_tokenizer.h"
#include "formats/scratch_files.h"

namespace kakeya {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Edit = std::function<void(nlohmann::json&)>;

std::string refusal(const std::string& text, bool gemma4) {
  const ScratchFolder folder;
  folder.write("tokenizer.json", text);
  ModelConfig config;
  config.architecture = gemma4 ? Architecture::kGemma4 : Architecture::kQwen3;
  config.vocab_size = 64;
  const auto metadata = gguf_tokenizer_metadata(folder.root(), config);
  return metadata ? "" : metadata.error().message();
}

std::string refusal_of_edited(bool gemma4, const Edit& edit) {
  auto root = nlohmann::json::parse(
      gemma4 ? tiny_tokenizer_json(true, R"("a": 0, "b": 1, "ab": 2, "<0x01>": 3, "▁": 4)")
             : tiny_tokenizer_json(false, R"("a": 0, "b": 1, "ab": 2, "Ġ": 3, "1": 4, "2": 5,
                                             "12": 6, "Ġa": 7, "Ã": 8, "©": 9)",
                                   R"("a b", "1 2", "Ġ a")"));
  edit(root);
  return refusal(root.dump(), gemma4);
}

TEST(GgufTokenizerCheck, AcceptsTheFormsThatFilesCanName) {
  EXPECT_EQ(refusal_of_edited(true, [](auto&) {}), "");
  EXPECT_EQ(refusal_of_edited(false, [](auto&) {}), "");
  // Members that make no difference may differ.
  EXPECT_EQ(refusal_of_edited(false, [](auto& root) { root["decoder"]["trim_offsets"] = true; }),
            "");
  EXPECT_EQ(refusal_of_edited(true, [](auto& root) { root.erase("pre_tokenizer"); }), "");
}

TEST(GgufTokenizerCheck, RefusesAnotherExpressionThatCutsText) {
  const auto cut_with = [](const std::string& expression) {
    return [expression](nlohmann::json& root) {
      root["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = expression;
    };
  };
  EXPECT_THAT(
      refusal_of_edited(false, cut_with("\\p{N}{1,3}|[^\\s\\p{N}]+|\\s+")),
      AllOf(HasSubstr("expected the expression \"(?i:'s|"), HasSubstr("got \"\\p{N}{1,3}")));
  EXPECT_THAT(
      refusal_of_edited(false, [](auto& root) { root["pre_tokenizer"]["pretokenizers"].erase(0); }),
      HasSubstr("got none"));
}

TEST(GgufTokenizerCheck, RefusesWhatReadsTextsOtherwise) {
  EXPECT_THAT(refusal_of_edited(true, [](auto& root) { root.erase("normalizer"); }),
              HasSubstr("differs in the text \""));
  EXPECT_THAT(refusal_of_edited(true, [](auto& root) { root["model"]["byte_fallback"] = false; }),
              HasSubstr("differs in the text \""));
  EXPECT_THAT(refusal_of_edited(true,
                                [](auto& root) {
                                  root["decoder"] = {{"type", "Fuse"}};
                                }),
              HasSubstr("differs in token 3: "));
  EXPECT_THAT(refusal_of_edited(false, [](auto& root) { root.erase("normalizer"); }),
              HasSubstr("differs in the text \""));
}

}  // namespace
}  // namespace kakeya
