// Commands on a model whose tokenizer is not known, that has no chat template, or that is
// a GGUF file where others are folders.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cli/program.h"

namespace kakeya::test {
namespace {

const std::string kNetworks = std::string(KAKEYA_TEST_DATA) + "/networks/";

class CommandTexts : public Cli {
 protected:
  // The demo model as a GGUF file.
  std::string gguf() {
    const std::string path = folder_ + "/demo.gguf";
    const Outcome outcome = kakeya("convert " + std::string(KAKEYA_DEMO_MODEL) + " " + path);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return path;
  }

  // That file with the name of a tokenizer that nobody knows.
  std::string gguf_of_another_tokenizer() {
    const std::string path = gguf();
    std::string bytes = slurp(path);
    const std::string key = "tokenizer.ggml.model";
    // Behind the key are the number of its type and the text's length.
    const std::size_t at = bytes.find(key) + key.size() + 4 + 8;
    EXPECT_EQ(bytes.substr(at, 6), "gemma4");
    bytes[at + 5] = '9';
    std::ofstream(path) << bytes;
    return path;
  }

  std::string model_without_template() {
    const std::string model = damaged_model();
    std::filesystem::remove(model + "/chat_template.jinja");
    return model;
  }
};

TEST_F(CommandTexts, AnEndingOfAnyCaseIsAGgufFile) {
  const std::string source = std::string(KAKEYA_DEMO_MODEL) + " ";
  for (const std::string name : {"a.GGUF", "b.Gguf"}) {
    const std::string path = folder_ + "/" + name;
    ASSERT_EQ(kakeya("convert " + source + path).exit_code, 0) << name;
    EXPECT_TRUE(std::filesystem::is_regular_file(path)) << name;
    EXPECT_EQ(kakeya("run -n 2 --prompt Hi --model " + path).exit_code, 0) << name;
  }
  expect_refusal("quantize " + source + folder_ + "/c.GGUF --bits 4", "are for folders");
}

TEST_F(CommandTexts, RestoringSaysWhatAGgufFileLacks) {
  const std::string restore = " --prompt Hi --window 64 --evicted-full restore";
  const std::string path = gguf();
  expect_refusal("run --model " + path + restore, "expected the folder of one in --projection");
  expect_refusal(
      "run --model " + path + restore + " --projection " + KAKEYA_DEMO_MODEL + "/projections/aux",
      "expected those of one in --draft");
}

TEST_F(CommandTexts, RestoringIsRefusedByNameWhereItIsNone) {
  const auto refused = [&](const std::string& network, const std::string& why) {
    for (const char* which : {"full", "sliding"}) {
      expect_refusal("run --prompt Hi --window 64 --model " + kNetworks + network + " --evicted-" +
                         which + " restore",
                     why);
    }
  };
  refused("llama", "rows of a llama model cannot be restored, for its keys have no norm");
  refused("mistral", "rows of a llama model cannot be restored, for its keys have no norm");
  refused("qwen2", "rows of a qwen2 model cannot be restored, for its keys and values have biases");
  refused("gemma4-e", "rows of a gemma4 model cannot be restored, for its layers share keys");
}

TEST_F(CommandTexts, LogitsAndConversionsTakeAnUnknownTokenizer) {
  const std::string path = gguf_of_another_tokenizer();
  expect_refusal("run --prompt Hi --model " + path, "tokenizer.ggml.model");
  const Outcome logits =
      kakeya("logits --ids - -o " + folder_ + "/logits.safetensors --model " + path, "[2, 105, 3]");
  EXPECT_EQ(logits.exit_code, 0) << logits.err;
  const std::string made = folder_ + "/made";
  const Outcome folder = kakeya("convert " + path + " " + made);
  ASSERT_EQ(folder.exit_code, 0) << folder.err;
  EXPECT_NE(folder.out.find("not taken along: tokenizer ("), std::string::npos) << folder.out;
  EXPECT_NE(folder.out.find("gemma9"), std::string::npos) << folder.out;
  EXPECT_FALSE(std::filesystem::exists(made + "/tokenizer.json"));
  EXPECT_TRUE(std::filesystem::exists(made + "/chat_template.jinja"));
  EXPECT_EQ(kakeya("convert " + path + " " + folder_ + "/again.gguf").exit_code, 0);
  // A folder's tokenizer is needed for a GGUF file, which has to name it.
  std::ofstream(made + "/tokenizer.json") << "{}";
  expect_refusal("convert " + made + " " + folder_ + "/named.gguf", "tokenizer.json");
}

TEST_F(CommandTexts, WithoutAChatTemplateConversationsAreRefusedBeforeAnythingIsLoaded) {
  const std::string model = model_without_template();
  std::filesystem::remove(model + "/model.safetensors");  // nobody gets as far
  const auto refused = [&](const std::string& command) {
    const Outcome outcome = kakeya(command + " --model " + model);
    EXPECT_EQ(outcome.exit_code, 2) << command;
    EXPECT_NE(outcome.err.find("has no chat template"), std::string::npos) << command << "\n"
                                                                           << outcome.err;
    EXPECT_NE(outcome.err.find("--chat-template FILE"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("(--raw)"), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  };
  refused("run --prompt Hi");
  refused("run --chat");
  refused("eval kv");
  refused("eval niah");
  refused("eval spec --draft ngram");
  refused("eval multitenant");
  refused("eval longrun --set mt_bench");
  std::ofstream(folder_ + "/sums.jsonl") << R"({"question":"1+1?","answer":"#### 2"})"
                                         << "\n";
  refused("eval gsm8k --data " + folder_ + "/sums.jsonl");
}

TEST_F(CommandTexts, WithoutAChatTemplateTextsAreGoneOnWith) {
  const std::string model = model_without_template();
  EXPECT_EQ(kakeya("run --raw -n 2 --prompt Hi --model " + model).exit_code, 0);
  const std::string with = " --chat-template " + std::string(KAKEYA_DEMO_MODEL);
  EXPECT_EQ(
      kakeya("run -n 2 --prompt Hi --model " + model + with + "/chat_template.jinja").exit_code, 0);
  const std::string ask = "curl -s -H 'Content-Type: application/json' $url/v1/";
  const std::string out = folder_ + "/answer";
  EXPECT_EQ(while_served("",
                         ask +
                             "chat/completions -d '{\"messages\":[{\"role\":\"user\",\"content\":"
                             "\"Hi\"}]}' > " +
                             out + "; " + ask +
                             "completions -d '{\"prompt\":\"Hi\",\"max_tokens\":2}' >> " + out,
                         "--model " + model),
            0);
  EXPECT_NE(slurp(folder_ + "/served").find("conversations will be refused: "), std::string::npos);
  const std::string answers = slurp(out);
  EXPECT_NE(answers.find("has no chat template"), std::string::npos) << answers;
  EXPECT_EQ(answers.find(model), std::string::npos) << answers;
  EXPECT_NE(answers.find("text_completion"), std::string::npos) << answers;
}

}  // namespace
}  // namespace kakeya::test
