// The drafts that a DFlash drafter may make, and the memory of its context.
#include "decode/dflash_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "backend/host_rows.h"
#include "model/test_model.h"

namespace kakeya::test {
namespace {

// A drafter of random weights for the small network, whose head is its table of embeddings: rows of
// the mask token's embedding come out near to it.
DrafterConfig masking_config(const ModelConfig& target, TokenId mask) {
  DrafterConfig config = load_drafter_config(network_dir("dflash-gemma4")).value();
  config.layers.hidden_size = target.hidden_size;
  config.layers.vocab_size = target.vocab_size;
  config.block_size = 8;
  config.num_target_layers = target.num_hidden_layers;
  config.target_layer_ids = {0, target.num_hidden_layers - 1};
  config.mask_token_id = mask;
  return config;
}

// Says whether the mask token has the largest logit in some row of a block.
bool prefers_mask(TestModel& model, const dflash::Drafter& drafter) {
  MemoryBudget budget;
  const DrafterConfig& config = drafter.config();
  KvCache context = KvCache::create(dflash::plan_context(config, 64, 8, {}), budget).value();
  const auto executor =
      model.backend().create_executor(dflash::plan_drafter_executor(config, 8), budget).value();
  Arena measure;
  dflash::DraftActivations::layout(measure, config, 8);
  const Buffer memory = budget.allocate(MemoryClass::kActivations, measure.used()).value();
  Arena arena(memory.device<std::byte>());
  const auto activations = dflash::DraftActivations::layout(arena, config, 8);
  const std::vector<TokenId> block(8, config.mask_token_id);
  const std::int64_t vocab = config.layers.vocab_size;
  std::vector<float> logits(static_cast<std::size_t>(7 * vocab));
  EXPECT_TRUE(context.reserve(8).has_value());
  const auto batch = BatchBuilder::one(block, context.length(), context.layers(), 7);
  executor->begin(batch.batch());
  drafter.forward(batch.batch(), *executor, activations, {device(logits.data()), 7, vocab});
  for (auto row = logits.begin(); row != logits.end(); row += vocab) {
    if (std::max_element(row, row + vocab) - row == config.mask_token_id) return true;
  }
  return false;
}

TEST(DflashDrafts, NeverHoldTheMaskToken) {
  const auto model = TestModel::load(network_dir("gemma4-moe"), {.name = "cpu"});
  ASSERT_NE(model, nullptr);
  const SessionOptions options{.context = 64, .max_rows = 16};
  int preferred = 0;
  for (const TokenId mask : {3, 4, 17, 60, 99, 200}) {
    const auto drafter = model->random_drafter(masking_config(model->config(), mask), 7);
    ASSERT_NE(drafter, nullptr);
    preferred += prefers_mask(*model, *drafter) ? 1 : 0;
    for (const float temperature : {0.0F, 1.0F}) {
      const auto source = model->dflash_source(*drafter, options);
      Sampler sampler = Sampler::create(model->config().vocab_size, model->budget()).value();
      sampler.set_options({.temperature = temperature, .seed = 3}, {});
      const std::vector<TokenId> text = {mask};
      std::vector<TokenId> drafts(7);
      ASSERT_OK(source->draft(text, sampler, drafts));
      EXPECT_EQ(std::ranges::count(drafts, mask), 0) << mask;
    }
  }
  EXPECT_GT(preferred, 0) << "nothing had to be left out";
}

// Its sliding layers hold their window, and the rows of a pass, whatever the context.
TEST(DflashContext, SlidingLayersHoldNoMoreThanTheirWindow) {
  const DrafterConfig config = load_drafter_config(KAKEYA_DEMO_MODEL "/drafter").value();
  const ModelConfig& layers = config.layers;
  constexpr std::int64_t kRows = 64;
  for (const std::int64_t context : {1024, 32768}) {
    const KvCacheSpec spec =
        dflash::plan_context(config, context, kRows, {.format = KvFormat::kBf16});
    const auto vector_bytes =
        static_cast<std::uint64_t>(2 * layers.num_key_value_heads * layers.head_dim * 2);
    const auto sliding = static_cast<std::uint64_t>(layers.sliding_window + kRows - 1);
    // Two sliding layers and a full one. Blocks may waste less than a slot each, of 64 or fewer.
    const std::uint64_t rows = 2 * sliding + static_cast<std::uint64_t>(context);
    const std::uint64_t bytes = spec.estimate().reserved_bytes(MemoryClass::kDrafter);
    EXPECT_GE(bytes, rows * vector_bytes);
    EXPECT_LE(bytes, rows * vector_bytes + rows / 8 * vector_bytes) << context;
  }
}

}  // namespace
}  // namespace kakeya::test
