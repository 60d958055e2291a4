// The drafter that is trained is the one that runs: forward passes against the published
// implementation's numbers, gradients against finite differences, steps that go on where they
// ended.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "drafter_data.h"
#include "drafter_trainer.h"
#include "formats/scratch_files.h"
#include "model/test_model.h"

namespace kakeya::train {
namespace {

using test::golden_floats;
using test::golden_ids;
using test::max_abs_difference;
using test::network_dir;
using test::root_mean_square;

struct Network {
  DrafterConfig config;
  DrafterWeights weights;
  BorrowedWeights borrowed;
};

Network load(const std::string& drafter, const std::string& target) {
  Network network;
  network.config = load_drafter_config(network_dir(drafter)).value();
  network.weights = read_drafter_weights(network_dir(drafter), network.config).value();
  const ModelConfig model = load_model_config(network_dir(target)).value();
  auto source = CheckpointSource::open(network_dir(target), model).value();
  network.borrowed.embedding = read_f32(*source, "embed_tokens.weight").value();
  network.borrowed.head = model.tie_word_embeddings ? network.borrowed.embedding
                                                    : read_f32(*source, "lm_head.weight").value();
  if (model.architecture == Architecture::kGemma4) {
    network.borrowed.embed_scale = std::sqrt(static_cast<float>(model.hidden_size));
  }
  return network;
}

std::vector<float> values_of(const mx::array& array) {
  mx::array plain = mx::contiguous(mx::astype(array, mx::float32));
  plain.eval();
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

// As tests/model/dflash_test.cc: f32 sums in another order.
constexpr float kTolerance = 1e-4F;

class MlxDrafterGolden : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(MlxDrafterGolden, GivesThePublishedHiddenRowsAndLogitsForEveryMask) {
  const auto [drafter, target] = GetParam();
  const Network network = load(drafter, target);
  const auto golden = SafetensorsFile::open(network_dir(drafter) + "/golden.safetensors").value();
  const std::vector<float> features = golden_floats(golden, "context_features");
  const auto context = std::ssize(features) / network.config.layers.hidden_size;
  DocumentBlocks blocks{.taps = golden_floats(golden, "aux"),
                        .anchors = {static_cast<std::int32_t>(context)},
                        .first_ids = {},
                        .block_ids = golden_ids(golden, "block_ids")};
  DrafterConfig config = network.config;
  config.block_size = std::ssize(blocks.block_ids);  // the golden's may be another
  // A second block behind half of the context: the first one's rows must not see it.
  DocumentBlocks two = blocks;
  two.anchors.push_back(static_cast<std::int32_t>(context / 2));
  two.block_ids.insert(two.block_ids.end(), blocks.block_ids.begin(), blocks.block_ids.end());
  for (const auto& [mask, name] :
       {std::pair{DraftMask::kAuto, "auto"}, std::pair{DraftMask::kCausal, "causal"},
        std::pair{DraftMask::kBidirectional, "bidirectional"}}) {
    const DrafterNetwork drafts(with_mask(config, mask), network.borrowed);
    const std::vector<mx::array> arrays = drafts.arrays(network.weights);
    const std::vector<float> hidden = golden_floats(golden, std::string(name) + ".hidden");
    const std::vector<float> logits = golden_floats(golden, std::string(name) + ".logits");
    for (const DocumentBlocks* given : {&blocks, &two}) {
      const mx::array rows = drafts.hidden(arrays, *given);
      std::vector<float> got = values_of(rows);
      got.resize(hidden.size());
      EXPECT_LE(max_abs_difference(got, hidden), kTolerance * root_mean_square(hidden)) << name;
      got = values_of(drafts.logits(rows));
      got.resize(logits.size());
      EXPECT_LE(max_abs_difference(got, logits), kTolerance) << name;
    }
  }
}

// Blocks amid a document against blocks at the end of one that is cut off at their anchors: what a
// block sees of the text is what there is when it is drafted.
TEST_P(MlxDrafterGolden, BlocksSeeThePositionsBelowTheirAnchorsOnly) {
  const auto [drafter, target] = GetParam();
  const Network network = load(drafter, target);
  const auto golden = SafetensorsFile::open(network_dir(drafter) + "/golden.safetensors").value();
  const std::vector<float> taps = golden_floats(golden, "aux");
  const auto width =
      std::ssize(network.config.target_layer_ids) * network.config.layers.hidden_size;
  const DrafterNetwork drafts(network.config, network.borrowed);
  const std::vector<mx::array> arrays = drafts.arrays(network.weights);
  const std::vector<std::int32_t> anchors = {20, 3, 11};
  const std::vector<float> all =
      values_of(drafts.hidden(arrays, {.taps = taps, .anchors = anchors, .first_ids = {7, 8, 9}}));
  const std::size_t size = all.size() / anchors.size();
  for (std::size_t n = 0; n < anchors.size(); ++n) {
    const std::vector<float> cut(taps.begin(), taps.begin() + anchors[n] * width);
    const std::vector<float> alone = values_of(drafts.hidden(
        arrays,
        {.taps = cut, .anchors = {anchors[n]}, .first_ids = {static_cast<TokenId>(7 + n)}}));
    const std::span<const float> together = std::span(all).subspan(n * size, size);
    EXPECT_LE(max_abs_difference(together, alone), kTolerance * root_mean_square(alone)) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Networks,
                         MlxDrafterGolden,
                         testing::Values(std::pair{"dflash-gemma4", "gemma4-moe"},
                                         std::pair{"dflash-qwen3", "qwen3-untied"}));

// Blocks of random tokens with random taps: two documents, one of which ends within its blocks.
std::vector<LabelledBlocks> random_blocks(const DrafterConfig& config, std::uint64_t seed) {
  SequenceRng rng(seed);
  std::vector<LabelledBlocks> documents;
  const std::int64_t width = std::ssize(config.target_layer_ids) * config.layers.hidden_size;
  for (const int context : {9, 14}) {
    LabelledBlocks document;
    for (std::int64_t i = 0; i < context * width; ++i) {
      document.blocks.taps.push_back(rng.symmetric());
    }
    for (const int anchor : {context, context - 4, 3}) {
      document.blocks.anchors.push_back(anchor);
      document.blocks.first_ids.push_back(static_cast<TokenId>(rng.below(500)));
      for (std::int64_t k = 1; k < config.block_size; ++k) {
        const bool inside = context == 14 || anchor + k < context + 2;
        document.labels.push_back(inside ? static_cast<TokenId>(rng.below(500)) : -1);
      }
    }
    documents.push_back(std::move(document));
  }
  return documents;
}

double loss_of(const DrafterNetwork& network,
               const std::vector<mx::array>& weights,
               std::span<const LabelledBlocks> blocks) {
  double loss = 0.0;
  double weight = 0.0;
  for (const LabelledBlocks& document : blocks) {
    LossSum sum = block_loss(network, weights, document, {.parameter = 3.0});
    loss += sum.loss.item<double>();
    weight += sum.weight.item<double>();
  }
  return loss / weight;
}

// The gradient in f32 against differences of the loss in f64, each relative to the largest number
// of its tensor. Tolerance 5e-4: MLX's loss in f64 is smooth to some 6e-9 only, 3e-6 of a
// difference at a step of 1e-3, and the smallest tensors' largest numbers are 1e-2.
TEST(MlxDrafterGradient, IsThatOfFiniteDifferencesForEveryTensor) {
  for (const auto& [drafter, target] :
       {std::pair{"dflash-gemma4", "gemma4-moe"}, std::pair{"dflash-qwen3", "qwen3-untied"}}) {
    const Network network = load(drafter, target);
    const DrafterWeights weights = random_drafter_weights(network.config, 3);
    const auto blocks = random_blocks(network.config, 7);
    const auto made = loss_and_gradients(DrafterNetwork(network.config, network.borrowed), weights,
                                         blocks, {.parameter = 3.0});
    ASSERT_OK(made);
    const DrafterNetwork exact(network.config, network.borrowed, mx::float64);
    const std::vector<mx::array> arrays = exact.arrays(weights);
    EXPECT_NEAR(made->loss, loss_of(exact, arrays, blocks), 1e-5);
    SequenceRng rng(11);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const std::vector<float>& gradient = made->gradients[i];
      const float largest =
          std::abs(*std::ranges::max_element(gradient, {}, [](float g) { return std::abs(g); }));
      ASSERT_GT(largest, 0.0F) << weights[i].name;
      for (int sample = 0; sample < 4; ++sample) {
        // The largest one first.
        const std::size_t j =
            sample == 0
                ? static_cast<std::size_t>(
                      std::ranges::max_element(gradient, {}, [](float g) { return std::abs(g); }) -
                      gradient.begin())
                : rng.below(gradient.size());
        std::vector<double> moved(gradient.size(), 0.0);
        moved[j] = 1e-3;
        const mx::array step(moved.data(), arrays[i].shape(), mx::float64);
        std::vector<mx::array> up = arrays;
        std::vector<mx::array> down = arrays;
        up[i] = arrays[i] + step;
        down[i] = arrays[i] - step;
        const double difference =
            (loss_of(exact, up, blocks) - loss_of(exact, down, blocks)) / 2e-3;
        EXPECT_NEAR(gradient[j], difference, 5e-4 * largest) << weights[i].name << " " << j;
      }
    }
  }
}

// The blocks that tools/golden_gradients.py made up, over the context of a drafter's golden.
LabelledBlocks golden_blocks(const SafetensorsFile& made, const std::string& drafter) {
  const auto golden = SafetensorsFile::open(network_dir(drafter) + "/golden.safetensors").value();
  LabelledBlocks blocks;
  blocks.blocks.taps = golden_floats(golden, "aux");
  blocks.blocks.anchors = golden_ids(made, "anchors");
  blocks.blocks.first_ids = golden_ids(made, "first_ids");
  blocks.labels = golden_ids(made, "labels");
  return blocks;
}

// Against JAX's differentiation of a loss that was written apart, in f64. Every tensor's numbers
// within 1e-4 of its gradient's root mean square, and its length: f32 sums in another order.
TEST(MlxDrafterGradient, IsThatOfAnotherLibraryForEveryTensor) {
  for (const auto& [drafter, target] :
       {std::pair{"dflash-gemma4", "gemma4-moe"}, std::pair{"dflash-qwen3", "qwen3-untied"}}) {
    const Network network = load(drafter, target);
    const auto made = SafetensorsFile::open(std::string(KAKEYA_TEST_DATA) + "/train/gradients-" +
                                            drafter + ".safetensors")
                          .value();
    const std::vector<LabelledBlocks> blocks = {golden_blocks(made, drafter)};
    const DrafterNetwork drafts(network.config, network.borrowed);
    for (const auto& [kind, weights] :
         {std::pair{"decay", DepthWeights{.parameter = 3.0}},
          std::pair{"dpace", DepthWeights{DepthWeights::Kind::kDpace, 0.5}}}) {
      const auto got = loss_and_gradients(drafts, network.weights, blocks, weights);
      ASSERT_OK(got);
      EXPECT_NEAR(got->loss, golden_floats(made, std::string(kind) + ".loss")[0], 1e-5);
      for (std::size_t i = 0; i < network.weights.size(); ++i) {
        const std::string name = std::string(kind) + "." + network.weights[i].name;
        const std::vector<float>& gradient = got->gradients[i];
        const float rms = root_mean_square(gradient);
        const double length = rms * std::sqrt(static_cast<double>(gradient.size()));
        const float expected_length = golden_floats(made, name + ".norm")[0];
        EXPECT_NEAR(length, expected_length, 1e-4 * expected_length) << name;
        const std::vector<float> some = golden_floats(made, name + ".some");
        ASSERT_EQ(some.size(), (gradient.size() + 14) / 15) << name;
        for (std::size_t j = 0; j < some.size(); ++j) {
          ASSERT_NEAR(gradient[15 * j], some[j], 1e-4 * rms) << name << " " << 15 * j;
        }
      }
    }
  }
}

TEST(MlxDrafterStep, RefusesALossThatIsNotFiniteAndLeavesTheState) {
  const Network network = load("dflash-qwen3", "qwen3-untied");
  const DrafterNetwork drafts(network.config, network.borrowed);
  TrainerState state(network.weights);
  state.weights.back().values[0] = INFINITY;  // of the last norm
  const DrafterWeights before = state.weights;
  const auto blocks = random_blocks(network.config, 7);
  EXPECT_EQ(code_of(train_step(drafts, blocks, {}, {}, state)), StatusCode::kDataLoss);
  EXPECT_EQ(state.steps_done, 0);
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(state.weights[i].values == before[i].values) << before[i].name;
  }
}

// Three drafts of probability 0.5, 0.25 and 1, the last one beyond the document, by hand.
TEST(MlxDrafterWeights, AreThoseOfTheFormulas) {
  const float log_p[] = {std::log(0.5F), std::log(0.25F), 0.0F};
  const float valid[] = {1.0F, 1.0F, 0.0F};
  const mx::array p(log_p, mx::Shape{1, 3});
  const mx::array v(valid, mx::Shape{1, 3});
  const std::vector<float> decay = values_of(depth_weights({.parameter = 2.0}, p, v));
  EXPECT_NEAR(decay[0], 1.0, 1e-6);
  EXPECT_NEAR(decay[1], std::exp(-0.5), 1e-6);
  EXPECT_EQ(decay[2], 0.0F);
  // a = 0.5: factors 0.75 and 0.625, products 0.75 and 0.46875, their sums from each depth on.
  const std::vector<float> dpace =
      values_of(depth_weights({.kind = DepthWeights::Kind::kDpace, .parameter = 0.5}, p, v));
  EXPECT_NEAR(dpace[0], 0.75 + 0.46875, 1e-6);
  EXPECT_NEAR(dpace[1], 0.46875, 1e-6);
  EXPECT_EQ(dpace[2], 0.0F);
}

TEST(MlxDrafterBlocks, HaveTheReplysOwnTokensForLabelsAndTapsBelowTheAnchors) {
  Reply reply{.ids = {10, 11, 12, 13, 14, 15}, .prompt = 2};
  for (int i = 0; i < 12; ++i) reply.taps.push_back(static_cast<float>(i));  // 2 a position
  EXPECT_EQ(reply.first_anchor(), 2);
  EXPECT_EQ(reply.num_anchors(), 3);  // 12, 13 and 14, each with a token behind it
  const std::vector<std::int64_t> anchors = {2, 4};
  const LabelledBlocks made = make_blocks(reply, anchors, 4, 2);
  EXPECT_EQ(made.blocks.first_ids, (std::vector<TokenId>{12, 14}));
  EXPECT_EQ(made.labels, (std::vector<TokenId>{13, 14, 15, 15, -1, -1}));
  EXPECT_EQ(made.blocks.taps, (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
}

// The blocks of a step depend on seed and number alone, and all positions come up.
TEST(MlxDrafterBlocks, AreDrawnFromAllPositionsAndTheSameAgain) {
  const std::vector<Reply> replies = {
      {.ids = {1, 2, 3, 4}, .prompt = 1, .taps = std::vector<float>(8)},
      {.ids = {5}, .prompt = 1, .taps = std::vector<float>(2)},  // nothing to draft from
      {.ids = std::vector<TokenId>(14, 6), .prompt = 3, .taps = std::vector<float>(28)}};
  std::set<std::pair<TokenId, std::int32_t>> seen;
  for (std::int64_t step = 0; step < 60; ++step) {
    const auto blocks = draw_blocks(replies, 16, 4, 2, 1, step);
    const auto again = draw_blocks(replies, 16, 4, 2, 1, step);
    ASSERT_EQ(blocks.size(), 2U);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(blocks[i].blocks.anchors, again[i].blocks.anchors);
      const TokenId document = blocks[i].blocks.first_ids.front() == 6 ? 6 : 1;
      for (const std::int32_t anchor : blocks[i].blocks.anchors) seen.insert({document, anchor});
    }
  }
  EXPECT_EQ(seen.size(), 2U + 10U);
}

}  // namespace
}  // namespace kakeya::train
