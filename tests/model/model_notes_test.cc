// Stop ids and notes that an engine takes from the text side of a folder: the demo model
// with other files beside its weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/scratch_files.h"
#include "kakeya/engine.h"

namespace kakeya {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ModelNotes : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"config.json", "generation_config.json", "tokenizer.json",
                             "tokenizer_config.json", "chat_template.jinja"}) {
      std::filesystem::copy_file(std::string(KAKEYA_DEMO_MODEL) + "/" + name, folder_.path(name));
    }
    std::filesystem::create_symlink(
        std::filesystem::absolute(KAKEYA_DEMO_MODEL "/model.safetensors"),
        folder_.path("model.safetensors"));
  }

  template <typename Change>
  void change(const std::string& name, Change to) {
    json content = json::parse(read_file(folder_.path(name)));
    to(content);
    folder_.write(name, content.dump());
  }

  std::shared_ptr<Engine> open() {
    notes_.clear();
    EngineOptions options{.model_dir = folder_.root(), .num_threads = 1, .pin_threads = false};
    options.session.context = 64;
    options.draft.source = "none";
    options.on_note = [&](const std::string& note) { notes_.push_back(note); };
    auto engine = Engine::open(options);
    EXPECT_TRUE(engine.has_value()) << engine.error().message();
    return engine ? std::move(*engine) : nullptr;
  }

  ScratchFolder folder_;
  std::vector<std::string> notes_;
};

TEST_F(ModelNotes, AreNoneOfTheDemoModel) {
  ASSERT_NE(open(), nullptr);
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(ModelNotes, AnswersEndAtTheEosTokenOfTheTokenizer) {
  const auto original = open();
  ASSERT_NE(original, nullptr);
  EXPECT_THAT(original->stop_ids(), ElementsAre(1, 106, 50));
  for (const char* name : {"config.json", "generation_config.json"}) {
    change(name, [](json& content) { content["eos_token_id"] = 1; });
  }
  for (const json& token : {json("<turn|>"), json{{"content", "<turn|>"}, {"lstrip", false}}}) {
    change("tokenizer_config.json", [&](json& content) { content["eos_token"] = token; });
    const auto engine = open();
    ASSERT_NE(engine, nullptr);
    EXPECT_THAT(engine->stop_ids(), ElementsAre(1, 106));
    EXPECT_THAT(notes_, IsEmpty());
  }
  change("tokenizer_config.json", [](json& content) { content["eos_token"] = "<nothing>"; });
  const auto engine = open();
  ASSERT_NE(engine, nullptr);
  EXPECT_THAT(engine->stop_ids(), ElementsAre(1));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("eos_token \"<nothing>\"")));
}

TEST_F(ModelNotes, AChatWithoutABosTokenIsSaid) {
  std::filesystem::remove(folder_.path("tokenizer_config.json"));
  ASSERT_NE(open(), nullptr);
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("bos_token"), HasSubstr("none is put there"))));
  folder_.write("chat_template.jinja", "{{ messages[0].content }}");
  ASSERT_NE(open(), nullptr);
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(ModelNotes, OtherWaysToChooseTokensAreSaid) {
  change("generation_config.json", [](json& content) {
    content["num_beams"] = 4;
    content["no_repeat_ngram_size"] = 0;
    content["top_k"] = -1;
    content["pad_token_id"] = -1;
  });
  ASSERT_NE(open(), nullptr);
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("generation_config.json: "),
                                        HasSubstr("not chosen in this way: num_beams 4"))));
}

TEST_F(ModelNotes, SuppressedTokensThatAreNoneAreSaid) {
  change("generation_config.json", [](json& content) {
    content["suppress_tokens"] = {5, 99'999'999, 88'888'888};
  });
  ASSERT_NE(open(), nullptr);
  EXPECT_THAT(notes_,
              ElementsAre(AllOf(HasSubstr("suppress_tokens 99999999, 88888888 (no tokens of"),
                                HasSubstr("generation_config.json: tokens are not chosen"))));
}

TEST_F(ModelNotes, AGitLfsPointerForATokenizerIsSaid) {
  folder_.write("tokenizer.json",
                "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 5000\n");
  const auto engine = Engine::open({.model_dir = folder_.root(), .num_threads = 1});
  EXPECT_THAT(error_naming("tokenizer.json", engine).message(), HasSubstr("a Git LFS pointer of"));
}

}  // namespace
}  // namespace kakeya
