// Tokenizers of the published families, from a folder to a GGUF file and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "convert/gguf_metadata.h"
#include "formats/scratch_files.h"
#include "text/text_test_util.h"
#include "text/tokenizer_gguf.h"

namespace kakeya {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;
using Edit = std::function<void(nlohmann::json&)>;

Result<std::vector<GgufMetadata>> metadata_of_family(const std::string& name,
                                                     const Edit& edit = {}) {
  auto root = read_json_file(data_path("tokenizers/families/" + name + ".json"));
  if (edit) edit(root);
  const ScratchFolder folder;
  folder.write("tokenizer.json", root.dump());
  ModelConfig config;
  config.architecture = Architecture::kQwen3;  // without meaning for a tokenizer
  config.vocab_size = 1024;
  return gguf_tokenizer_metadata(folder.root(), config);
}

void expect_cases(const Tokenizer& tokenizer, const nlohmann::json& golden) {
  for (const auto& item : golden["cases"]) {
    const auto ids = item["ids"].get<Ids>();
    if (!item["text"].is_null()) {
      EXPECT_EQ(tokenizer.encode(item["text"].get<std::string>()).value(), ids) << item["text"];
    }
    EXPECT_EQ(tokenizer.decode(ids, false), item["decoded"].get<std::string>()) << item;
    EXPECT_EQ(tokenizer.decode(ids), item["decoded_without_special"].get<std::string>()) << item;
  }
}

class VocabularyFamilies : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(VocabularyFamilies, GoToAGgufFileAndBack) {
  const auto [name, pre] = GetParam();
  const auto metadata = metadata_of_family(name);
  ASSERT_TRUE(metadata.has_value()) << metadata.error().message();
  std::vector<GgufMetadata> all = {{"general.architecture", std::string("llama")}};
  all.insert(all.end(), metadata->begin(), metadata->end());
  const ScratchFolder folder;
  const std::string path = folder.path("tokenizer.gguf");
  ASSERT_TRUE(write_gguf(path, all, {}).has_value());
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_EQ(file->text("tokenizer.ggml.pre").value(), pre);
  const auto golden =
      read_json_file(data_path(fmt::format("tokenizers/families/{}_cases.json", name)));
  expect_cases(load_tokenizer(path), golden);
  const auto written = gguf_tokenizer_json(*file);
  ASSERT_TRUE(written.has_value()) << written.error().message();
  const auto back = Tokenizer::parse(*written);
  ASSERT_TRUE(back.has_value()) << back.error().message();
  expect_cases(*back, golden);
}

INSTANTIATE_TEST_SUITE_P(All,
                         VocabularyFamilies,
                         testing::Values(std::pair("llama2", "default"),
                                         std::pair("gemma3", "default"),
                                         std::pair("llama3", "llama-bpe"),
                                         std::pair("smollm", "smollm")),
                         [](const auto& each) { return std::string(each.param.first); });

std::string refusal_of_family(const std::string& name, const Edit& edit = {}) {
  const auto metadata = metadata_of_family(name, edit);
  return metadata ? "" : metadata.error().message();
}

TEST(VocabularyFamilyParts, AreRefusedWhereAGgufFileCannotSayThem) {
  // No space behind special tokens.
  EXPECT_THAT(refusal_of_family("mistral"),
              AllOf(HasSubstr("tokenizer.json"), HasSubstr("differs in the text")));
  EXPECT_THAT(refusal_of_family("llama2_normalized"), HasSubstr("differs in the text"));
  EXPECT_THAT(refusal_of_family("llama2", [](auto& root) { root["model"]["merges"].erase(40); }),
              HasSubstr("by which all pairs that make a token merge: expected \""));
  EXPECT_THAT(refusal_of_family("llama2",
                                [](auto& root) {
                                  auto& merges = root["model"]["merges"];
                                  merges.push_back(merges[0]);
                                }),
              HasSubstr("one after another, got others between them"));
  EXPECT_THAT(refusal_of_family("smollm",
                                [](auto& root) {
                                  root["pre_tokenizer"]["pretokenizers"][0]["individual_digits"] =
                                      false;
                                }),
              HasSubstr("tokenizer.json"));
  EXPECT_THAT(
      refusal_of_family("llama3", [](auto& root) { root["model"]["ignore_merges"] = false; }),
      HasSubstr("tokenizer.json"));
}

}  // namespace
}  // namespace kakeya
