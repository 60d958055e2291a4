// Engines with a DFlash 2 drafter, from a folder and from a GGUF file: outputs are those of plain
// decoding.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "formats/gguf_model_scratch.h"
#include "formats/scratch_files.h"
#include "model/test_model.h"
#include "runtime/engine_impl.h"

namespace kakeya::test {
namespace {

std::unique_ptr<EngineImpl> open_pair(const std::string& model, const std::string& drafter) {
  auto engine = EngineImpl::open({.model_dir = network_dir(model),
                                  .compute = Compute::kF32,
                                  .num_threads = 2,
                                  .pin_threads = false,
                                  .session = {.context = 256},
                                  .draft = {.source = drafter}});
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  return engine ? std::move(engine).value() : nullptr;
}

struct Drafted {
  std::vector<TokenId> ids;
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
};

Drafted generate_drafted(EngineImpl& engine, float temperature, std::int64_t draft_length) {
  const auto session = engine.create_session().value();
  const std::vector<TokenId> prompt = {2, 105, 300, 17, 250, 300, 17, 411, 9, 33};
  EXPECT_TRUE(session->append(prompt).has_value());
  const auto result = session->generate({.max_tokens = 60,
                                         .sampling = {.temperature = temperature, .seed = 11},
                                         .draft_length = draft_length,
                                         .ignore_model_stop_ids = true});
  EXPECT_TRUE(result.has_value()) << result.error().message();
  if (!result) return {};
  return {result->ids, result->drafted, result->accepted};
}

struct Pair {
  const char* model;
  const char* drafter;
};

class Dflash2Engine : public testing::TestWithParam<Pair> {};

void PrintTo(const Pair& pair, std::ostream* out) {
  *out << pair.drafter;
}

TEST_P(Dflash2Engine, GivesThePlainTokensFromAFolderAndFromAGgufFile) {
  const ScratchFolder scratch;
  const std::string dir = network_dir(GetParam().drafter);
  const std::string path = drafter_as_gguf(dir).write(scratch.path("drafter.gguf"));
  const auto plain = open_pair(GetParam().model, "none");
  const auto folder = open_pair(GetParam().model, dir);
  const auto file = open_pair(GetParam().model, path);
  ASSERT_TRUE(plain && folder && file);
  for (const float temperature : {0.0F, 0.8F}) {
    const Drafted expected = generate_drafted(*plain, temperature, 0);
    for (const std::int64_t length : {1, 3, 5}) {
      const Drafted got = generate_drafted(*folder, temperature, length);
      const Drafted of_file = generate_drafted(*file, temperature, length);
      EXPECT_EQ(got.ids, expected.ids);
      EXPECT_GT(got.drafted, 20);
      EXPECT_EQ(of_file.ids, expected.ids);
      EXPECT_EQ(of_file.drafted, got.drafted);
      EXPECT_EQ(of_file.accepted, got.accepted);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllPairs,
                         Dflash2Engine,
                         testing::Values(Pair{"qwen3-untied", "dflash2-qwen3"},
                                         Pair{"qwen3-untied", "dflash2-qwen3-edge"},
                                         Pair{"gemma4-moe", "dflash2-gemma4"}),
                         [](const auto& test) {
                           std::string name = test.param.drafter;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

std::vector<std::byte> as_bytes(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// A drafter of the first kind with convolutions that take the row itself, codes of zero, and all
// tokens for candidates: a DFlash 2 drafter with the same drafts, also with noise, which chooses
// among all.
std::string write_neutral(const std::string& dir, const std::string& path) {
  const DrafterConfig config = load_drafter_config(dir).value();
  const std::int64_t width = config.layers.hidden_size;
  GgufContent content = drafter_as_gguf(dir);
  content.set("dflash.conv_kernel_size", u32(2));
  content.set("dflash.conv_group_size", u32(16));
  content.set("dflash.selector_rank", u32(8));
  content.set("dflash.selector_top_k", u32(config.layers.vocab_size - 1));
  const auto add = [&](const std::string& name, const Shape& shape,
                       std::vector<float> values = {}) {
    values.resize(static_cast<std::size_t>(num_elements(shape)));
    content.add_tensor(name, shape, DType::kF32, as_bytes(values));
  };
  std::vector<float> kernel(static_cast<std::size_t>(4 * width));
  std::fill_n(kernel.begin(), width, 1.0F);
  std::fill_n(kernel.begin() + 2 * width, width, 1.0F);
  for (std::int64_t layer = 0; layer < config.layers.num_hidden_layers; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    for (const char* part : {"attn_conv", "ffn_conv"}) {
      add(prefix + part + "_base", {2, 2, width}, kernel);
      add(prefix + part + "_proj.weight", {4 * width / 16, width});
    }
  }
  add("selector_predecessor.weight", {config.layers.vocab_size, 8});
  add("selector_successor.weight", {config.layers.vocab_size, 8});
  add("selector_hidden.weight", {8, width});
  return content.write(path);
}

TEST(NeutralDflash2, DraftsAsTheDrafterOfTheFirstKindThatItIs) {
  const ScratchFolder scratch;
  for (const Pair& pair :
       {Pair{"qwen3-untied", "dflash-qwen3"}, Pair{"gemma4-moe", "dflash-gemma4"}}) {
    const std::string dir = network_dir(pair.drafter);
    const auto first = open_pair(pair.model, dir);
    const auto second = open_pair(pair.model, write_neutral(dir, scratch.path("neutral.gguf")));
    ASSERT_TRUE(first && second);
    for (const float temperature : {0.0F, 0.8F}) {
      const Drafted expected = generate_drafted(*first, temperature, 3);
      const Drafted got = generate_drafted(*second, temperature, 3);
      EXPECT_EQ(got.ids, expected.ids);
      EXPECT_EQ(got.drafted, expected.drafted);
      EXPECT_EQ(got.accepted, expected.accepted) << pair.drafter;
    }
  }
}

}  // namespace
}  // namespace kakeya::test
