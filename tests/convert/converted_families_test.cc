// Small networks of every family from a folder to GGUF and back, and to MLX's form. Equal bits of
// logits: files of Llama hold rows of heads in another order, folders of Gemma 3 other norms, and
// experts may be there one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "base/memory_budget.h"
#include "convert/gguf_model.h"
#include "convert/hf_checkpoint.h"
#include "convert/mlx_checkpoint.h"
#include "convert/tiny_tokenizer.h"
#include "formats/scratch_files.h"
#include "model/test_model.h"

namespace kakeya::test {
namespace {

namespace fs = std::filesystem;

std::string family_folder(const ScratchFolder& folder, const std::string& name) {
  fs::create_directory(folder.path(name));
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::copy(network_dir(name) + "/" + file, folder.path(name + "/" + file));
  }
  folder.write(name + "/tokenizer.json", tiny_tokenizer_json(/*gemma4=*/false));
  return folder.path(name);
}

std::vector<float> family_logits(const std::string& path) {
  const auto model = TestModel::load(path, {.name = "ref"});
  if (model == nullptr) return {};
  std::vector<TokenId> ids = random_ids(17, 3);
  for (TokenId& id : ids) id %= static_cast<TokenId>(model->config().vocab_size);
  const auto timeline = model->timeline({.context = 32, .max_rows = 32}, 32);
  return run(*timeline, ids, {}, 9).logits;
}

void expect_converted(const Result<ConversionReport>& report) {
  ASSERT_TRUE(report.has_value()) << report.error().message();
}

class ConvertedFamilies : public testing::TestWithParam<const char*> {
 protected:
  Result<ConversionReport> to_gguf(const std::string& source, const std::string& target) {
    return convert_to_gguf(source, folder_.path(target), find_gguf_file_type("bf16").value(),
                           {.threads = 1}, budget_);
  }
  Result<ConversionReport> to_folder(const std::string& source, const std::string& target) {
    return convert_to_hf(source, folder_.path(target), std::nullopt, {.threads = 1}, budget_);
  }
  Result<ConversionReport> to_mlx(const std::string& source, const std::string& target) {
    return quantize_to_mlx(source, folder_.path(target), {.bits = 8, .group_size = 32},
                           {.threads = 1}, budget_);
  }

  ScratchFolder folder_;
  MemoryBudget budget_;
};

TEST_P(ConvertedFamilies, GiveTheSameLogitsInEveryForm) {
  const std::string source = family_folder(folder_, GetParam());
  const std::vector<float> expected = family_logits(source);
  ASSERT_FALSE(expected.empty());
  expect_converted(to_gguf(source, "one.gguf"));
  EXPECT_EQ(family_logits(folder_.path("one.gguf")), expected);
  expect_converted(to_gguf(folder_.path("one.gguf"), "two.gguf"));
  EXPECT_EQ(family_logits(folder_.path("two.gguf")), expected);
  expect_converted(to_folder(folder_.path("two.gguf"), "back"));
  EXPECT_EQ(family_logits(folder_.path("back")), expected);
  expect_converted(to_folder(source, "copy"));
  EXPECT_EQ(family_logits(folder_.path("copy")), expected);

  expect_converted(to_mlx(source, "mlx"));
  expect_converted(to_mlx(folder_.path("one.gguf"), "mlx-of-gguf"));
  const std::vector<float> quantized = family_logits(folder_.path("mlx"));
  ASSERT_EQ(quantized.size(), expected.size());
  EXPECT_EQ(family_logits(folder_.path("mlx-of-gguf")), quantized);
  // 8 bits are near, and not the same.
  EXPECT_NE(quantized, expected);
  float sum = 0.0F;
  for (std::size_t i = 0; i < expected.size(); ++i) sum += std::fabs(quantized[i] - expected[i]);
  EXPECT_LT(sum / static_cast<float>(expected.size()), 0.25F);
}

INSTANTIATE_TEST_SUITE_P(
    Networks,
    ConvertedFamilies,
    testing::Values("llama", "llama-biased", "mistral", "gemma3", "qwen2", "qwen3moe"),
    [](const auto& test) {
      std::string name = test.param;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace kakeya::test
