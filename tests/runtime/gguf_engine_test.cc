// Engines opened from GGUF files: those of llama.cpp's converter (tools/make_gguf_goldens.py), and
// the demo model written as GGUF, against the folders they were made from.
#include <gtest/gtest.h>

#include "formats/gguf_model_scratch.h"
#include "formats/scratch_files.h"
#include "model/test_model.h"
#include "runtime/engine_impl.h"

namespace kakeya::test {
namespace {

const std::string kNetworks = std::string(KAKEYA_TEST_DATA) + "/networks/";
const std::string kGolden = std::string(KAKEYA_TEST_DATA) + "/gguf/gemma4-moe.gguf";
const std::string kGoldenDrafter = std::string(KAKEYA_TEST_DATA) + "/gguf/dflash-gemma4.gguf";

Result<std::unique_ptr<EngineImpl>> open_models(const std::string& model,
                                                const std::string& drafter) {
  return EngineImpl::open({.model_dir = model,
                           .compute = Compute::kF32,
                           .num_threads = 1,
                           .pin_threads = false,
                           .session = {.context = 256},
                           .draft = {.source = drafter}});
}

struct Generated {
  std::vector<TokenId> ids;
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
};

Generated generate(EngineImpl& engine, std::int64_t draft_length) {
  const auto session = engine.create_session().value();
  const std::vector<TokenId> prompt = {2, 105, 300, 17, 250, 300, 17, 411, 9, 33};
  EXPECT_TRUE(session->append(prompt).has_value());
  const auto result = session->generate(
      {.max_tokens = 60, .draft_length = draft_length, .ignore_model_stop_ids = true});
  EXPECT_TRUE(result.has_value()) << result.error().message();
  if (!result) return {};
  return {result->ids, result->drafted, result->accepted};
}

TEST(GgufEngine, ModelAndDrafterOfTheConverterGenerateAsTheirFolders) {
  const auto files = open_models(kGolden, kGoldenDrafter);
  const auto folders = open_models(kNetworks + "gemma4-moe", kNetworks + "dflash-gemma4");
  ASSERT_OK(files);
  ASSERT_OK(folders);
  for (const std::int64_t length : {0, 3}) {
    const Generated got = generate(**files, length);
    const Generated expected = generate(**folders, length);
    EXPECT_EQ(got.ids, expected.ids);
    EXPECT_EQ(got.drafted, expected.drafted);
    EXPECT_EQ(got.accepted, expected.accepted);
    EXPECT_EQ(got.drafted > 0, length > 0);
  }
  EXPECT_EQ((*files)->bos_id(), 2);
  EXPECT_EQ((*files)->vocab_size(), 512);
}

TEST(GgufEngine, TextOfTheConverterIsTheDemoModels) {
  const auto file = open_models(kGolden, "none");
  const auto demo = open_models(KAKEYA_DEMO_MODEL, "none");
  ASSERT_OK(file);
  ASSERT_OK(demo);
  EXPECT_EQ((*file)->stop_ids().size(), 3U);
  EXPECT_TRUE(std::ranges::equal((*file)->stop_ids(), (*demo)->stop_ids()));
  const std::vector<ChatMessage> messages = {{"system", "Be brief."},
                                             {"user", " Count from 5 to 12. "},
                                             {"assistant", "5"},
                                             {"user", "on"}};
  for (const bool thinking : {false, true}) {
    const ChatOptions options = {.enable_thinking = thinking};
    const auto got = (*file)->apply_chat_template(messages, options);
    const auto expected = (*demo)->apply_chat_template(messages, options);
    ASSERT_OK(got);
    ASSERT_OK(expected);
    EXPECT_EQ(got->text, expected->text);
    EXPECT_EQ((**(*file)->tokenizer()).encode(got->text).value(),
              (**(*demo)->tokenizer()).encode(expected->text).value());
  }
  const SamplingOptions got = (*file)->recommended_sampling();
  EXPECT_EQ(got.temperature, SamplingOptions{}.temperature);  // the network's folder says nothing
}

TEST(GgufEngine, FilesWithoutTextSaySoWhenTextIsAskedFor) {
  const ScratchFolder scratch;
  const std::string path =
      model_as_gguf(kNetworks + "qwen3-tied").write(scratch.path("model.gguf"));
  const auto engine = open_models(path, "none");
  ASSERT_OK(engine);
  const auto tokenizer = (*engine)->tokenizer();
  ASSERT_FALSE(tokenizer.has_value());
  EXPECT_EQ(tokenizer.error().message(),
            path + " has no tokenizer (tokenizer.json, or tokenizer.ggml.tokens in a GGUF file)");
  const auto rendered = (*engine)->apply_chat_template({}, {});
  ASSERT_FALSE(rendered.has_value());
  EXPECT_NE(rendered.error().message().find("has no chat template"), std::string::npos);
  // Clients of a server read this one.
  EXPECT_EQ(rendered.error().message().find(path), std::string::npos);
}

// A snapshot belongs to the file it was made with: other metadata, another model.
TEST(GgufEngine, MetadataAreAPartOfTheModel) {
  const ScratchFolder scratch;
  GgufContent content = model_as_gguf(kNetworks + "qwen3-tied");
  const std::string a = content.write(scratch.path("a.gguf"));
  content.set("qwen3.context_length", std::uint32_t{2048});
  const std::string b = content.write(scratch.path("b.gguf"));
  const std::string snapshot = scratch.path("session.snapshot");
  const auto first = open_models(a, "none");
  ASSERT_OK(first);
  const auto session = (*first)->create_session().value();
  const std::vector<TokenId> prompt = {5, 9, 3};
  ASSERT_OK(session->append(prompt));
  ASSERT_OK(session->generate({.max_tokens = 4}));
  ASSERT_OK(session->snapshot(snapshot));
  const auto same = open_models(a, "none");
  ASSERT_OK(same);
  EXPECT_TRUE((*same)->create_session().value()->restore(snapshot).has_value());
  const auto other = open_models(b, "none");
  ASSERT_OK(other);
  EXPECT_FALSE((*other)->create_session().value()->restore(snapshot).has_value());
}

TEST(GgufEngine, DraftersThatAreNoneAreRefused) {
  EXPECT_FALSE(open_models(kGolden, kGolden).has_value());
  const auto missing = open_models(kGolden, "/nowhere/drafter.gguf");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace kakeya::test
