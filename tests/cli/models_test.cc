// Models by their names, and `kakeya models`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/models/model_cache.h"
#include "cli/program.h"

namespace kakeya::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ModelsByName : public Cli {
 protected:
  ModelsByName() {
    // The cache of the fixture holds nothing of the user's; neither may the home folder.
    home_ = "HOME=" + folder_ +
            "/home; export HOME; unset HF_HOME HF_HUB_CACHE LLAMA_CACHE "
            "OLLAMA_MODELS; ";
    const HubModel demo(folder_ + "/cache/huggingface/hub", "models--kakeya--demo");
    demo.add_files_of(KAKEYA_DEMO_MODEL);
    write_model_file(folder_ + "/home/.lmstudio/models/owner/name/x-Q8_0.gguf", 7, 5000);
    write_model_file(folder_ + "/home/.lmstudio/models/owner/name/x-F16.gguf", 1);
  }
  Outcome at_home(const std::string& arguments) { return kakeya(arguments, "", home_); }

  std::string home_;
};

TEST_F(ModelsByName, RunLikePaths) {
  const std::string prompt = " \"Count from 5 to 12.\" -n 8";
  const Outcome by_path = at_home("run " + std::string(KAKEYA_DEMO_MODEL) + prompt);
  const Outcome by_name = at_home("run kakeya/demo" + prompt);
  EXPECT_EQ(by_name.exit_code, 0) << by_name.err;
  EXPECT_EQ(by_name.out, by_path.out);
  EXPECT_THAT(by_name.err, Not(HasSubstr("note: kakeya/demo")));
  for (const char* command : {"inspect kakeya/demo", "doctor kakeya/demo"}) {
    const Outcome outcome = at_home(command);
    EXPECT_EQ(outcome.exit_code, 0) << command << "\n" << outcome.err;
  }
  EXPECT_THAT(at_home("bench attention --model kakeya/none").err, HasSubstr("kakeya pull"));
  const Outcome written = at_home("convert kakeya/demo " + folder_ + "/demo.gguf");
  EXPECT_EQ(written.exit_code, 0) << written.err;
}

TEST_F(ModelsByName, DraftLikePaths) {
  const HubModel drafter(folder_ + "/cache/huggingface/hub", "models--kakeya--demo-drafter");
  drafter.add_files_of(KAKEYA_DEMO_MODEL "/drafter");
  const std::string prompt =
      "run kakeya/demo \"Count from 5 to 12.\" -n 8 --draft-length 3 --draft ";
  const Outcome by_path = at_home(prompt + KAKEYA_DEMO_MODEL + "/drafter");
  for (const char* name : {"kakeya/demo-drafter", "ngram+kakeya/demo-drafter"}) {
    const Outcome by_name = at_home(prompt + name);
    EXPECT_EQ(by_name.exit_code, 0) << by_name.err;
    EXPECT_EQ(by_name.out, by_path.out);
    EXPECT_THAT(by_name.err, HasSubstr("drafts accepted"));
  }
  EXPECT_THAT(at_home(prompt + "kakeya/none").err, HasSubstr("kakeya pull kakeya/none"));
  EXPECT_THAT(at_home(prompt + "nothing").err, HasSubstr("nothing holds no drafter"));
}

TEST_F(ModelsByName, SayWhichOfSeveralItIs) {
  const Outcome outcome = at_home("inspect owner/name");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("/owner/name/x-Q8_0.gguf\n"));
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("note: owner/name is "), HasSubstr("also owner/name:F16\n")));
  EXPECT_THAT(at_home("inspect owner/name:F16").out, HasSubstr("/owner/name/x-F16.gguf\n"));
}

TEST_F(ModelsByName, GiveWayToPathsThatAreThere) {
  std::filesystem::create_directories(folder_ + "/kakeya/demo");
  const Outcome outcome = kakeya("run kakeya/demo x", "", home_ + "cd " + folder_ + "; ");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("kakeya/demo/config.json: expected a model's configuration"));
}

TEST_F(ModelsByName, OfOneWordAreNoPrompt) {
  const std::string hex(64, 'a');
  const std::string ollama = folder_ + "/home/.ollama/models/";
  write_text(ollama + "blobs/sha256-" + hex, "no weights");
  write_text(ollama + "manifests/registry.ollama.ai/library/small/1b",
             R"({"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:)" +
                 hex + R"("}]})");
  const Outcome model = at_home("run small:1b -p x");
  EXPECT_EQ(model.exit_code, 2);
  EXPECT_THAT(model.err, AllOf(HasSubstr("small:1b: "), HasSubstr(" cannot run: ")));
  EXPECT_EQ(at_home("run small:2b -n 1").exit_code, 0);  // a prompt of the demo model
}

TEST_F(ModelsByName, AreListed) {
  const Outcome outcome = at_home("models");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(testing::ContainsRegex(
                                     "\nkakeya/demo +gemma4 +BF16 +[0-9.]+ MiB +[0-9]+ +Hugging "
                                     "Face +yes\n"),
                                 testing::ContainsRegex("\nowner/name:Q8_0 +llama +Q8_0 ")));
  const auto json = nlohmann::json::parse(at_home("models --json").out);
  ASSERT_EQ(json["models"].size(), 3U);
  EXPECT_EQ(json["models"][0]["call"], "kakeya/demo");
  EXPECT_EQ(json["models"][0]["runs"], true);
  EXPECT_EQ(json["models"][1]["file"], "x-Q8_0.gguf");
  EXPECT_EQ(json["places"].size(), 5U);
  std::filesystem::remove_all(folder_ + "/home");
  std::filesystem::remove_all(folder_ + "/cache");
  EXPECT_THAT(at_home("models").out, HasSubstr("no models found; `kakeya pull OWNER/NAME`"));
}

}  // namespace
}  // namespace kakeya::test
