// Tokenizers against fixtures made by other implementations: the `tokenizers` package (see
// tools/make_tokenizer_goldens.py), llama.cpp, and the published Gemma 4 vectors.
#include <cstdlib>
#include <vector>

#include "kakeya/tokenizer.h"
#include "text/pre_tokenizer.h"
#include "text/text_test_util.h"

namespace kakeya {
namespace {

using Ids = std::vector<TokenId>;

// Cases {"text", "ids", "decoded"}; without a text only decoding is checked.
void expect_cases(const Tokenizer& tokenizer, const nlohmann::json& cases, bool skip_special) {
  ASSERT_FALSE(cases.empty());
  for (const auto& item : cases) {
    const auto ids = item["ids"].get<Ids>();
    if (!item["text"].is_null()) {
      EXPECT_EQ(tokenizer.encode(item["text"].get<std::string>()).value(), ids) << item["text"];
    }
    EXPECT_EQ(tokenizer.decode(ids, skip_special), item["decoded"].get<std::string>())
        << item["ids"];
  }
}

TEST(TokenizerGolden, DemoModelCases) {
  nlohmann::json cases;
  std::istringstream lines(
      read_text_file(std::string(KAKEYA_DEMO_MODEL) + "/golden/tokenizer_cases.jsonl"));
  for (std::string line; std::getline(lines, line);) cases.push_back(nlohmann::json::parse(line));
  EXPECT_EQ(cases.size(), 300u);
  expect_cases(demo_tokenizer(), cases, false);
}

TEST(TokenizerGolden, DemoModelAgreesWithTheTokenizersPackageOnRandomText) {
  expect_cases(demo_tokenizer(), read_json_file(data_path("text/demo_cases.json"))["cases"], true);
}

TEST(TokenizerGolden, QwenStyleAgreesWithTheTokenizersPackageOnRandomText) {
  expect_cases(load_tokenizer(data_path("text/byte_level.json")),
               read_json_file(data_path("text/byte_level_cases.json"))["cases"], true);
}

std::vector<std::string> split_on(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t i; (i = text.find(separator, begin)) != std::string::npos;) {
    parts.push_back(text.substr(begin, i - begin));
    begin = i + separator.size();
  }
  return parts;
}

// llama.cpp's vocabulary tests: texts between separator lines, and one line of ids each.
void expect_llama_cpp_cases(const Tokenizer& tokenizer, const std::string& name) {
  const auto texts =
      split_on(read_text_file(data_path("tokenizers/llama_cpp/" + name + ".gguf.inp")),
               "\n__ggml_vocab_test__\n");
  std::istringstream lines(read_text_file(data_path("tokenizers/llama_cpp/" + name + ".gguf.out")));
  ASSERT_GT(texts.size(), 40u);
  for (const std::string& text : texts) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    std::istringstream numbers(line);
    Ids expected;
    for (TokenId id; numbers >> id;) expected.push_back(id);
    EXPECT_EQ(tokenizer.encode(text).value(), expected) << text;
  }
}

TEST(TokenizerGolden, Gpt2AgreesWithLlamaCpp) {
  expect_llama_cpp_cases(gpt2_tokenizer(), "ggml-vocab-gpt-2");
}

TEST(TokenizerGolden, Gpt2KnownIds) {
  const Tokenizer tokenizer = gpt2_tokenizer();
  EXPECT_EQ(tokenizer.encode("Hello world").value(), (Ids{15496, 995}));
  EXPECT_EQ(tokenizer.encode("<|endoftext|>x").value(), (Ids{50256, 87}));
  EXPECT_EQ(tokenizer.vocab_size(), 50257u);
}

TEST(TokenizerGolden, Gemma4PublishedVectors) {
  const char* path = std::getenv("GEMMA4_TOKENIZER_JSON");
  if (path == nullptr) {
    GTEST_SKIP() << "the Gemma 4 vocabulary is not redistributable with the tests: set "
                    "GEMMA4_TOKENIZER_JSON to the tokenizer.json of a Gemma 4 model";
  }
  const Tokenizer tokenizer = load_tokenizer(path);
  for (const auto& item : read_json_file(data_path("tokenizers/gemma4/corpus_goldens.json"))) {
    const auto ids = item["ids"].get<Ids>();
    EXPECT_EQ(tokenizer.encode(item["text"].get<std::string>()).value(), ids) << item["id"];
    EXPECT_EQ(tokenizer.decode(ids), item["decoded"].get<std::string>()) << item["id"];
  }
  for (const auto& item : read_json_file(data_path("tokenizers/gemma4/decode_goldens.json"))) {
    EXPECT_EQ(tokenizer.decode(item["ids"].get<Ids>()), item["decoded"].get<std::string>());
  }
  const auto chat = read_json_file(data_path("tokenizers/gemma4/chat_template_golden.json"));
  EXPECT_EQ(tokenizer.encode(chat["rendered_text"].get<std::string>()).value(),
            chat["ids"].get<Ids>());
  expect_llama_cpp_cases(tokenizer, "ggml-vocab-gemma-4");
}

std::vector<std::string> pieces_of(const PreTokenizer& pre_tokenizer, const std::string& text) {
  std::vector<std::string_view> words;
  MatchTime time(text.size());
  EXPECT_TRUE(pre_tokenizer.split(text, time, words).has_value());
  return {words.begin(), words.end()};
}

PreTokenizer isolate_by(std::string_view pattern) {
  auto regex = Regex::compile(pattern);
  if (!regex) throw std::runtime_error(regex.error().message());
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add({std::move(*regex), SplitBehavior::kIsolated, false});
  return pre_tokenizer;
}

TEST(PreTokenizerGolden, QwenAndGpt2ExpressionsCutLikeTheTokenizersPackage) {
  const auto fixture = read_json_file(data_path("text/split_cases.json"));
  const PreTokenizer qwen = isolate_by(fixture["pattern"].get<std::string>());
  const PreTokenizer gpt2 = isolate_by(kByteLevelPattern);
  EXPECT_GT(fixture["patterns"].size(), 400u);
  for (const auto& item : fixture["patterns"]) {
    const auto text = item["text"].get<std::string>();
    EXPECT_EQ(pieces_of(qwen, text), item["qwen"].get<std::vector<std::string>>()) << item["text"];
    EXPECT_EQ(pieces_of(gpt2, text), item["gpt2"].get<std::vector<std::string>>()) << item["text"];
  }
}

TEST(PreTokenizerGolden, SplitBehavioursCutLikeTheTokenizersPackage) {
  const std::map<std::string, SplitBehavior> behaviors = {
      {"removed", SplitBehavior::kRemoved},
      {"isolated", SplitBehavior::kIsolated},
      {"merged_with_previous", SplitBehavior::kMergedWithPrevious},
      {"merged_with_next", SplitBehavior::kMergedWithNext},
      {"contiguous", SplitBehavior::kContiguous}};
  const auto fixture = read_json_file(data_path("text/split_cases.json"));
  EXPECT_EQ(fixture["behaviors"].size(), 60u);
  for (const auto& item : fixture["behaviors"]) {
    PreTokenizer pre_tokenizer;
    pre_tokenizer.add({std::string(" "), behaviors.at(item["behavior"].get<std::string>()),
                       item["invert"].get<bool>()});
    EXPECT_EQ(pieces_of(pre_tokenizer, item["text"].get<std::string>()),
              item["pieces"].get<std::vector<std::string>>())
        << item;
  }
}

}  // namespace
}  // namespace kakeya
