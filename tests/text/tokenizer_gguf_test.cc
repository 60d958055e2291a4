// Tokenizers of GGUF files against the tokenizer.json they were made from: one that llama.cpp's
// converter wrote (tools/make_gguf_goldens.py), and files written here under its conventions.
#include "text/tokenizer_gguf.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <vector>

#include "formats/gguf_write.h"
#include "formats/scratch_files.h"
#include "kakeya/tokenizer.h"
#include "text/text_test_util.h"

namespace kakeya {
namespace {

using testing::HasSubstr;
using Ids = std::vector<TokenId>;

const std::string kGolden = data_path("gguf/gemma4-moe.gguf");

constexpr std::int32_t kNormal = 1;
constexpr std::int32_t kControl = 3;
constexpr std::int32_t kUserDefined = 4;
constexpr std::int32_t kUnused = 5;

// A tokenizer as a converter writes it.
struct Written {
  std::string model;
  std::string pre;  // empty: no key
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  std::vector<std::string> merges;

  std::vector<GgufMetadata> metadata() const {
    std::vector<GgufMetadata> all = {{"general.architecture", std::string("qwen3")},
                                     {"tokenizer.ggml.model", model},
                                     {"tokenizer.ggml.tokens", tokens},
                                     {"tokenizer.ggml.token_type", types},
                                     {"tokenizer.ggml.merges", merges}};
    if (!pre.empty()) all.push_back({"tokenizer.ggml.pre", pre});
    return all;
  }
};

// Qwen's pipeline, without the added token that is matched in normalised text: GGUF has no such.
nlohmann::json qwen_style() {
  nlohmann::json json = read_json_file(data_path("text/byte_level.json"));
  auto& added = json["added_tokens"];
  added.erase(
      std::remove_if(added.begin(), added.end(),
                     [](const auto& each) { return each["normalized"].template get<bool>(); }),
      added.end());
  return json;
}

// The tokenizer.json as converters write it, with rows of padding behind the last token.
Written written_from(const nlohmann::json& json, const std::string& model, const std::string& pre) {
  Written written{.model = model, .pre = pre, .tokens = {}, .types = {}, .merges = {}};
  const auto put = [&](std::size_t id, const std::string& text, std::int32_t type) {
    while (written.tokens.size() <= id) {
      written.tokens.push_back(fmt::format("[PAD{}]", written.tokens.size()));
      written.types.push_back(kUnused);
    }
    written.tokens[id] = text;
    written.types[id] = type;
  };
  for (const auto& [text, id] : json["model"]["vocab"].items()) put(id, text, kNormal);
  for (const auto& token : json["added_tokens"]) {
    put(token["id"], token["content"], token["special"].get<bool>() ? kControl : kUserDefined);
  }
  for (int padding = 0; padding < 3; ++padding) {
    const std::size_t id = written.tokens.size();
    put(id, fmt::format("[PAD{}]", id), kUnused);
  }
  for (const auto& merge : json["model"]["merges"]) {
    written.merges.push_back(merge.is_string()
                                 ? merge.get<std::string>()
                                 : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  return written;
}

Result<Tokenizer> load_written(const std::vector<GgufMetadata>& metadata) {
  const ScratchFolder scratch;
  const std::string path = scratch.path("t.gguf");
  EXPECT_TRUE(write_gguf(path, metadata, {}).has_value());
  return Tokenizer::load(path);
}

Result<Tokenizer> load_written(const Written& written) {
  return load_written(written.metadata());
}

// Equal ids and texts, on random text with tokens strewn in.
void expect_same(const Tokenizer& got, const Tokenizer& expected) {
  std::mt19937 random(7);
  const auto size = static_cast<TokenId>(expected.vocab_size());
  for (int round = 0; round < 300; ++round) {
    std::string text = random_text(random, 60);
    Ids ids;
    for (int i = 0; i < 20; ++i) {
      ids.push_back(static_cast<TokenId>(random() % static_cast<std::uint32_t>(size)));
      if (i % 3 != 0) continue;
      text += expected.token_text(ids.back()).value_or("");
      text += random_text(random, 5);
    }
    for (const bool special : {true, false}) {
      EXPECT_EQ(got.encode(text, {.parse_special = special}).value(),
                expected.encode(text, {.parse_special = special}).value())
          << text;
      EXPECT_EQ(got.decode(ids, special), expected.decode(ids, special));
    }
  }
  for (TokenId id = 0; id < size; ++id) {
    EXPECT_EQ(got.token_text(id), expected.token_text(id)) << id;
    EXPECT_EQ(got.is_special(id), expected.is_special(id)) << id;
  }
}

TEST(TokenizerGguf, OfTheConverterIsTheDemoModels) {
  const Tokenizer got = load_tokenizer(kGolden);
  const Tokenizer expected = demo_tokenizer();
  expect_same(got, expected);
  const auto file = read_json_file(data_path("text/demo_cases.json"));
  for (const auto& item : file["cases"]) {
    const auto ids = item["ids"].get<Ids>();
    if (!item["text"].is_null()) {
      EXPECT_EQ(got.encode(item["text"].get<std::string>()).value(), ids);
    }
    EXPECT_EQ(got.decode(ids), item["decoded"].get<std::string>());
  }
}

TEST(TokenizerGguf, OfQwenIsThatOfTheTokenizerJson) {
  const auto got = load_written(written_from(qwen_style(), "gpt2", "qwen2"));
  ASSERT_TRUE(got.has_value()) << got.error().message();
  const auto expected = Tokenizer::parse(qwen_style().dump());
  ASSERT_TRUE(expected.has_value()) << expected.error().message();
  expect_same(*got, *expected);
}

// Expects a tokenizer.json of the same content as the file: with its own added tokens and no rows
// of padding.
void expect_same_as_json(const std::string& path) {
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file.has_value()) << file.error().message();
  const auto json = gguf_tokenizer_json(*file);
  ASSERT_TRUE(json.has_value()) << json.error().message();
  const auto got = Tokenizer::parse(*json);
  ASSERT_TRUE(got.has_value()) << got.error().message();
  expect_same(*got, Tokenizer::load(path).value());
}

TEST(TokenizerGguf, IsWrittenAsATokenizerJsonThatGivesTheSameIds) {
  expect_same_as_json(kGolden);
  const ScratchFolder scratch;
  const std::string path = scratch.path("qwen.gguf");
  const Written qwen = written_from(qwen_style(), "gpt2", "qwen2");
  ASSERT_TRUE(write_gguf(path, qwen.metadata(), {}).has_value());
  expect_same_as_json(path);
  // As published, all but the order of keys.
  const auto json =
      nlohmann::json::parse(gguf_tokenizer_json(GgufFile::open(path).value()).value());
  const auto published = qwen_style();
  EXPECT_EQ(json["added_tokens"], published["added_tokens"]);
  EXPECT_EQ(json["model"]["vocab"], published["model"]["vocab"]);
  const auto gemma =
      nlohmann::json::parse(gguf_tokenizer_json(GgufFile::open(kGolden).value()).value());
  const auto demo = read_json_file(std::string(KAKEYA_DEMO_MODEL) + "/tokenizer.json");
  for (const auto& [key, value] : demo.items()) EXPECT_EQ(gemma[key], value) << key;
}

TEST(TokenizerGguf, RowsOfPaddingAreNoTokens) {
  const Written written = written_from(qwen_style(), "gpt2", "qwen2");
  const auto got = load_written(written);
  ASSERT_TRUE(got.has_value()) << got.error().message();
  EXPECT_FALSE(got->token_id(written.tokens.back()).has_value());
  EXPECT_EQ(got->decode(Ids{static_cast<TokenId>(written.tokens.size() - 1)}), "\uFFFD");
}

TEST(TokenizerGguf, EndsOfTextsAreSpecialWhateverTheirType) {
  const Written written = {.model = "gpt2",
                           .pre = "qwen2",
                           .tokens = {"a", "b", "ab", "<|im_end|>"},
                           .types = {kNormal, kNormal, kNormal, kNormal},
                           .merges = {"a b"}};
  const auto got = load_written(written);
  ASSERT_TRUE(got.has_value()) << got.error().message();
  EXPECT_TRUE(got->is_special(3));
  EXPECT_EQ(got->encode("ab<|im_end|>").value(), (Ids{2, 3}));
}

// The error of loading the tokenizer with one thing changed, in one line that names the file.
template <typename Change>
Error refusal(Change change) {
  Written written{.model = "gpt2",
                  .pre = "qwen2",
                  .tokens = {"a", "b", "ab", "<|im_end|>"},
                  .types = {kNormal, kNormal, kNormal, kControl},
                  .merges = {"a b"}};
  EXPECT_TRUE(load_written(written).has_value());
  change(written);
  return error_naming("t.gguf", load_written(written));
}

TEST(TokenizerGguf, OtherTokenizersAreRefusedByName) {
  const Error model = refusal([](Written& it) { it.model = "t5"; });
  EXPECT_EQ(model.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(model.message(), HasSubstr("expected gemma4, gpt2 or llama, got \"t5\""));
  const Error pre = refusal([](Written& it) { it.pre = "tekken"; });
  EXPECT_EQ(pre.code(), StatusCode::kUnimplemented);
  constexpr const char* kKnown =
      "expected gpt-2, llama-bpe, llama-v3, llama3, qwen2 or smollm, got ";
  EXPECT_THAT(pre.message(), HasSubstr(std::string(kKnown) + "\"tekken\""));
  const Error none = refusal([](Written& it) { it.pre.clear(); });
  EXPECT_EQ(none.code(), StatusCode::kNotFound);
  EXPECT_THAT(none.message(), HasSubstr(std::string(kKnown) + "none"));
}

TEST(TokenizerGguf, BrokenTablesAreRefused) {
  EXPECT_THAT(refusal([](Written& it) { it.types.pop_back(); }).message(),
              HasSubstr("as many types, got 4 and 3"));
  EXPECT_THAT(refusal([](Written& it) { it.types[0] = 7; }).message(),
              HasSubstr("element 0: expected an integer from 1 to 6"));
  EXPECT_THAT(refusal([](Written& it) { it.merges = {"ab"}; }).message(),
              HasSubstr("merge 0: expected two tokens that make a third, got \"ab\""));
  EXPECT_THAT(refusal([](Written& it) {
                it.merges = {"a b", "b\n a"};
              }).message(),
              HasSubstr("merge 1"));
  EXPECT_THAT(refusal([](Written& it) { it.merges = {""}; }).message(), HasSubstr("merge 0"));
  EXPECT_THAT(refusal([](Written& it) { it.tokens[1] = "\xff\n"; }).message(),
              HasSubstr("token 1: expected UTF-8"));
  EXPECT_THAT(refusal([](Written& it) { it.tokens[3] = std::string(2000, 'x'); }).message(),
              HasSubstr("expected at most 1024 bytes"));
}

TEST(TokenizerGguf, UnknownTokenMustBeOne) {
  Written written = written_from(read_json_file(std::string(KAKEYA_DEMO_MODEL) + "/tokenizer.json"),
                                 "gemma4", "");
  std::vector<GgufMetadata> metadata = written.metadata();
  metadata.push_back({"tokenizer.ggml.unknown_token_id", std::uint32_t{1 << 20}});
  EXPECT_THAT(message_of(load_written(metadata)), HasSubstr("tokenizer.ggml.unknown_token_id"));
}

}  // namespace
}  // namespace kakeya
