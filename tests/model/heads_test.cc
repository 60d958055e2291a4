// Heads of their own and heads that are tied, in both architectures: small networks whose head is a
// copy of the embedding, the embedding upside down, or other numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "convert/gguf_model.h"
#include "convert/mlx_checkpoint.h"
#include "convert/tiny_tokenizer.h"
#include "formats/gguf_model_scratch.h"
#include "formats/safetensors_writer.h"
#include "formats/scratch_files.h"
#include "model/test_model.h"

namespace kakeya::test {
namespace {

using testing::HasSubstr;

const char* const kTiedNetworks[] = {"gemma4-dense", "gemma4-moe", "gemma4-e", "qwen3-tied"};
constexpr std::size_t kTokens = 11;

// Makes a head of an embedding.
using MakeHead = std::function<std::vector<std::byte>(const TensorView& embedding)>;

std::vector<std::byte> copy_of(const TensorView& embedding) {
  return {embedding.data, embedding.data + embedding.bytes()};
}

std::vector<std::byte> upside_down(const TensorView& embedding) {
  const auto row = static_cast<std::size_t>(embedding.row_bytes());
  std::vector<std::byte> head;
  for (std::int64_t r = embedding.shape[0] - 1; r >= 0; --r) {
    const std::byte* const from = embedding.data + static_cast<std::size_t>(r) * row;
    head.insert(head.end(), from, from + row);
  }
  return head;
}

std::vector<std::byte> random_numbers(const TensorView& embedding) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0F, 0.3F);
  std::vector<BFloat16> values(static_cast<std::size_t>(num_elements(embedding.shape)));
  for (BFloat16& value : values) value = to_bfloat16(normal(random));
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// A folder with the tensors of a network and a head besides, which its configuration calls tied or
// not.
std::string with_head(const ScratchFolder& scratch,
                      const std::string& network,
                      const MakeHead& make_head,
                      bool tied) {
  static int count = 0;
  const std::string path = scratch.path(network + std::to_string(count++));
  std::filesystem::create_directory(path);
  auto config = nlohmann::json::parse(read_file(network_dir(network) + "/config.json"));
  config["tie_word_embeddings"] = tied;
  std::ofstream(path + "/config.json") << config.dump();
  // GGUF files are not made without one.
  std::ofstream(path + "/tokenizer.json") << tiny_tokenizer_json(
      network.starts_with("gemma4"), network.starts_with("gemma4")
                                         ? R"("a": 0, "b": 1, "ab": 2, "<0x01>": 3, "\u2581": 4)"
                                         : R"("a": 0, "b": 1, "ab": 2, "1": 3, "2": 4)");
  const Checkpoint checkpoint = Checkpoint::open(network_dir(network)).value();
  std::vector<TensorView> tensors;
  for (const TensorView& tensor : checkpoint.files().front().tensors()) tensors.push_back(tensor);
  const auto embedding = std::ranges::find_if(tensors, [](const TensorView& tensor) {
    return tensor.name.ends_with("embed_tokens.weight");
  });
  const std::vector<std::byte> values = make_head(*embedding);
  TensorView head = *embedding;
  head.name = "lm_head.weight";
  head.data = values.data();
  if (values.size() == 2 * embedding->bytes()) head.dtype = DType::kF32;
  tensors.push_back(head);
  EXPECT_TRUE(write_safetensors(path + "/model.safetensors", tensors, {}).has_value());
  return path;
}

// Logits [S, V] of a few tokens, and with `taps` what these are.
ForwardRecord record_of(const std::string& path,
                        const BackendChoice& choice,
                        Compute compute,
                        std::span<const std::int64_t> taps = {}) {
  const auto model = TestModel::load(path, choice, compute);
  if (model == nullptr) return {};
  std::vector<TokenId> ids = random_ids(kTokens, 5);
  for (TokenId& id : ids) id %= static_cast<TokenId>(model->config().vocab_size);
  const auto timeline = model->timeline({.context = 16, .max_rows = 16}, 16);
  return run(*timeline, ids, taps, 7);
}

std::vector<float> logits_of(const std::string& path,
                             const BackendChoice& choice,
                             Compute compute = Compute::kF32) {
  return record_of(path, choice, compute).logits;
}

// Each row of logits backwards.
std::vector<float> backwards(std::vector<float> logits) {
  const std::size_t vocab = logits.size() / kTokens;
  for (auto row = logits.begin(); row != logits.end(); row += static_cast<std::ptrdiff_t>(vocab)) {
    std::reverse(row, row + static_cast<std::ptrdiff_t>(vocab));
  }
  return logits;
}

class OwnHead : public testing::TestWithParam<BackendChoice> {};

TEST_P(OwnHead, GivesTheBitsOfTheTiedModelWhereItIsACopy) {
  const ScratchFolder scratch;
  for (const char* network : kTiedNetworks) {
    SCOPED_TRACE(network);
    const std::string own = with_head(scratch, network, copy_of, false);
    for (const Compute compute : {Compute::kF32, Compute::kFast}) {
      const auto expected = logits_of(network_dir(network), GetParam(), compute);
      ASSERT_FALSE(expected.empty());
      EXPECT_EQ(logits_of(own, GetParam(), compute), expected);
    }
  }
}

TEST_P(OwnHead, TurnsTheLogitsAroundWhereItIsUpsideDown) {
  const ScratchFolder scratch;
  for (const char* network : kTiedNetworks) {
    SCOPED_TRACE(network);
    const std::string own = with_head(scratch, network, upside_down, false);
    for (const Compute compute : {Compute::kF32, Compute::kFast}) {
      const auto expected = backwards(logits_of(network_dir(network), GetParam(), compute));
      ASSERT_FALSE(expected.empty());
      EXPECT_EQ(logits_of(own, GetParam(), compute), expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends,
                         OwnHead,
                         testing::ValuesIn(all_backends()),
                         [](const auto& test) { return test.param.label(); });

// Sums of up to 128 products in another order, of numbers around 1: 1e-4 is ten times their error.
TEST(OwnHeads, GiveTheProductsOfTheLastHiddenStates) {
  const ScratchFolder scratch;
  for (const char* network : kTiedNetworks) {
    SCOPED_TRACE(network);
    const std::string path = with_head(scratch, network, random_numbers, false);
    const ModelConfig config = load_model_config(path).value();
    const std::vector<std::int64_t> taps = {config.num_hidden_layers};
    const ForwardRecord record = record_of(path, {.name = "ref"}, Compute::kF32, taps);
    const Checkpoint checkpoint = Checkpoint::open(path).value();
    const auto head = to_f32(*checkpoint.find("lm_head.weight")).value();
    ASSERT_EQ(record.logits.size(), kTokens * static_cast<std::size_t>(config.vocab_size));
    const auto width = static_cast<std::size_t>(config.hidden_size);
    for (std::size_t i = 0; i < record.logits.size(); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(config.vocab_size);
      const std::size_t token = i % static_cast<std::size_t>(config.vocab_size);
      double logit = 0.0;
      for (std::size_t d = 0; d < width; ++d) {
        logit += static_cast<double>(record.taps[row * width + d]) * head[token * width + d];
      }
      const double cap = config.final_logit_softcapping;
      if (cap > 0.0) logit = std::tanh(logit / cap) * cap;
      ASSERT_NEAR(record.logits[i], logit, 1e-4) << "token " << token << " in row " << row;
    }
  }
}

// Bytes that a budget would be charged for the weights.
std::uint64_t weight_bytes(const std::string& path, Backend& backend) {
  const ModelConfig config = load_model_config(path).value();
  const auto source = CheckpointSource::open(path, config).value();
  WeightLoader measure(*source, backend);
  EXPECT_TRUE(load_decoder(config, measure, Compute::kFast).has_value());
  return measure.charged_bytes();
}

TEST(OwnHeads, AreCountedBeforeTheyAreLoaded) {
  const ScratchFolder scratch;
  const auto backend =
      create_test_backend({.name = "ref", .threads = {.num_threads = 1, .pin = false}}).value();
  for (const char* network : kTiedNetworks) {
    SCOPED_TRACE(network);
    const std::string path = with_head(scratch, network, upside_down, false);
    const ModelConfig config = load_model_config(path).value();
    const std::string tied = network_dir(network);
    const TensorView head = {.shape = {config.vocab_size, config.hidden_size},
                             .dtype = DType::kBF16};
    EXPECT_EQ(weight_bytes(path, *backend),
              weight_bytes(tied, *backend) + backend->matrix_bytes(head, Compute::kFast));
    EXPECT_EQ(parameter_count(config)->total,
              parameter_count(load_model_config(tied).value())->total + num_elements(head.shape));
  }
}

TEST(OwnHeads, AreInGgufFilesAndInQuantisedCopies) {
  const ScratchFolder scratch;
  const BackendChoice choice = {.name = "ref"};
  for (const char* network : kTiedNetworks) {
    SCOPED_TRACE(network);
    const std::string own = with_head(scratch, network, upside_down, false);
    const std::string tied = with_head(scratch, network, copy_of, true);
    const std::string gguf = scratch.path(std::string(network) + ".gguf");
    EXPECT_EQ(logits_of(model_as_gguf(own).write(gguf), choice), logits_of(own, choice));
    MemoryBudget budget;
    const AffineFormat format = {.bits = 8, .group_size = 32};
    for (const std::string& source : {own, tied}) {
      ASSERT_OK(quantize_to_mlx(source, source + "-mlx", format, {.threads = 1}, budget));
      ASSERT_OK(convert_to_gguf(source, source + "-q8.gguf", find_gguf_file_type("q8_0").value(),
                                {.threads = 1}, budget));
    }
    for (const char* kind : {"-mlx", "-q8.gguf"}) {
      const auto expected = logits_of(tied + kind, choice);
      ASSERT_FALSE(expected.empty());
      EXPECT_EQ(logits_of(own + kind, choice), backwards(expected)) << kind;
    }
  }
}

TEST(TiedHeads, MayBeInTheCheckpointAsCopies) {
  const ScratchFolder scratch;
  const BackendChoice choice = {.name = "ref"};
  const auto widened = [](const TensorView& embedding) {
    const auto values = to_f32(embedding).value();
    const auto bytes = std::as_bytes(std::span(values));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  for (const char* network : kTiedNetworks) {
    SCOPED_TRACE(network);
    const auto expected = logits_of(network_dir(network), choice);
    EXPECT_EQ(logits_of(with_head(scratch, network, copy_of, true), choice), expected);
    EXPECT_EQ(logits_of(with_head(scratch, network, widened, true), choice), expected);
    ASSERT_OK(open_source_model(with_head(scratch, network, copy_of, true)));
  }
}

TEST(TiedHeads, ThatAreNoCopiesAreRefused) {
  const ScratchFolder scratch;
  const auto one_bit_off = [](const TensorView& embedding) {
    std::vector<std::byte> head = copy_of(embedding);
    head[head.size() - 2] ^= std::byte{1};
    return head;
  };
  for (const char* network : kTiedNetworks) {
    for (const MakeHead& make_head : {MakeHead(upside_down), MakeHead(one_bit_off)}) {
      const std::string path = with_head(scratch, network, make_head, true);
      const ModelConfig config = load_model_config(path).value();
      const auto file = std::filesystem::path(path).filename().string();
      const Error refusal = error_naming(file, CheckpointSource::open(path, config));
      EXPECT_EQ(refusal.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(refusal.message(), HasSubstr("lm_head.weight: expected a copy of"));
      EXPECT_THAT(refusal.message(), HasSubstr("tie_word_embeddings"));
      EXPECT_EQ(message_of(open_source_model(path)), refusal.message());
    }
  }
}

}  // namespace
}  // namespace kakeya::test
