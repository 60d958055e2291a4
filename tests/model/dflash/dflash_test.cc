// The drafter against the published implementation's numbers (tests/data/networks/dflash*: the
// z-lab model in fp32 on bf16 weights, with explicit masks), and its incremental context.
//
// Tolerance: 1e-4, on hidden states times their root mean square: fp32 sums in another order. The
// taps are the golden file's own, so the target's rounding does not enter.
#include "model/dflash/dflash.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/random.h"
#include "model/dflash/drafter_case.h"
#include "model/test_model.h"

namespace kakeya::test {
namespace {

constexpr float kTolerance = 1e-4F;

// A drafter with the memory that a session would give it.
class DrafterPass {
 public:
  DrafterPass(TestModel& model, const dflash::Drafter& drafter, std::int64_t max_rows)
      : drafter_(drafter),
        space_(model.backend().memory()),
        context_(KvCache::create(
                     dflash::plan_context(drafter.config(), 256, max_rows, {}), budget_, space_)
                     .value()),
        executor_(
            model.backend()
                .create_executor(dflash::plan_drafter_executor(drafter.config(), max_rows), budget_)
                .value()) {
    Arena measure;
    lay_out(measure, max_rows);
    memory_ = budget_.allocate(MemoryClass::kActivations, measure.used(), space_).value();
    Arena arena(memory_.device<std::byte>());
    lay_out(arena, max_rows);
  }

  // Commits context rows made of `taps`; returns their features.
  std::vector<float> extend(std::span<const float> taps) {
    const auto width = static_cast<std::int64_t>(drafter_.config().target_layer_ids.size()) *
                       drafter_.config().layers.hidden_size;
    const auto rows = static_cast<std::int64_t>(taps.size()) / width;
    EXPECT_TRUE(context_.reserve(rows).has_value());
    const auto batch = BatchBuilder::one_of_rows(rows, context_.length(), context_.layers());
    upload(space_, taps, taps_.data);
    executor_->begin(batch.batch());
    drafter_.extend_context({taps_.data, rows, width}, batch.batch(), *executor_, activations_);
    context_.commit(rows);
    return values_of(first_rows(activations_.features, rows));
  }

  struct Block {
    std::vector<float> hidden;
    std::vector<float> logits;
    std::vector<float> gates;
  };
  Block block(std::span<const TokenId> ids) {
    const auto rows = static_cast<std::int64_t>(ids.size());
    Block result;
    EXPECT_TRUE(context_.reserve(rows).has_value());
    const auto batch = BatchBuilder::one(ids, context_.length(), context_.layers(), rows);
    const Rows logits = first_rows(logits_, rows);
    executor_->begin(batch.batch());
    const ConstRows hidden =
        drafter_.forward(batch.batch(), *executor_, activations_, logits, first_rows(gates_, rows));
    context_.commit(0);
    result.hidden = values_of(hidden);
    result.logits = values_of(logits);
    result.gates = values_of(first_rows(gates_, rows));
    if (drafter_.selector() != nullptr) finish(result.logits);
    return result;
  }

  KvCache& context() { return context_; }

 private:
  void lay_out(Arena& arena, std::int64_t max_rows) {
    const DrafterConfig& config = drafter_.config();
    activations_ = dflash::DraftActivations::layout(arena, config, max_rows);
    taps_ = arena.rows(max_rows, static_cast<std::int64_t>(config.target_layer_ids.size()) *
                                     config.layers.hidden_size);
    logits_ = arena.rows(max_rows, config.layers.vocab_size);
    gates_ = arena.rows(max_rows, config.selector_rank);
  }
  // Does to logits what the selector does to those of its candidates.
  void finish(std::vector<float>& logits) const {
    const float cap = drafter_.config().layers.final_logit_softcapping;
    for (float& logit : logits) {
      logit *= drafter_.config().output_multiplier;
      if (cap > 0.0F) logit = cap * std::tanh(logit / cap);
    }
  }
  std::vector<float> values_of(ConstRows rows) const {
    std::vector<float> values(static_cast<std::size_t>(rows.count * rows.width));
    download(space_, rows.data, std::span(values));
    return values;
  }

  const dflash::Drafter& drafter_;
  MemorySpace& space_;
  MemoryBudget budget_;
  KvCache context_;
  std::unique_ptr<Executor> executor_;
  Buffer memory_;
  dflash::DraftActivations activations_;
  Rows taps_;
  Rows logits_;
  Rows gates_;
};

class DflashGolden : public testing::TestWithParam<DrafterCase> {
 protected:
  void SetUp() override {
    model_ = TestModel::load(network_dir(GetParam().target), GetParam().backend);
    golden_ = std::make_unique<SafetensorsFile>(
        SafetensorsFile::open(network_dir(GetParam().drafter) + "/golden.safetensors").value());
  }

  std::vector<float> golden(const std::string& name) { return golden_floats(*golden_, name); }

  std::unique_ptr<TestModel> model_;
  std::unique_ptr<SafetensorsFile> golden_;
};

constexpr std::pair<DraftMask, const char*> kMasks[] = {
    {DraftMask::kAuto, "auto"},
    {DraftMask::kCausal, "causal"},
    {DraftMask::kBidirectional, "bidirectional"}};

using Change = std::function<void(DrafterConfig&)>;

Change with(DraftMask mask) {
  return [mask](DrafterConfig& config) { config = with_mask(std::move(config), mask); };
}

Change scaled(float scale) {
  return [scale](DrafterConfig& config) { config.input_embedding_scale = scale; };
}

TEST_P(DflashGolden, GivesThePublishedFeaturesHiddenRowsAndLogitsForEveryMask) {
  const std::vector<float> taps = golden("aux");
  const std::vector<TokenId> block = golden_ids(*golden_, "block_ids");
  for (const auto& [mask, name] : kMasks) {
    const auto drafter = model_->drafter(network_dir(GetParam().drafter), with(mask));
    ASSERT_NE(drafter, nullptr);
    DrafterPass pass(*model_, *drafter, 64);
    const std::vector<float> features = golden("context_features");
    EXPECT_LE(max_abs_difference(pass.extend(taps), features),
              kTolerance * root_mean_square(features));
    const DrafterPass::Block got = pass.block(block);
    const std::vector<float> hidden = golden(std::string(name) + ".hidden");
    const std::vector<float> logits = golden(std::string(name) + ".logits");
    EXPECT_LE(max_abs_difference(got.hidden, hidden), kTolerance * root_mean_square(hidden))
        << name;
    EXPECT_LE(max_abs_difference(got.logits, logits), kTolerance) << name;
    if (mask != DraftMask::kAuto || drafter->selector() == nullptr) continue;
    // Those of the rows behind the known token's, which drafts nothing.
    const std::vector<float> gates = golden("step.gate");
    EXPECT_LE(max_abs_difference(std::span(got.gates).last(gates.size()), gates), kTolerance);
  }
}

TEST_P(DflashGolden, OtherMasksScalesAndShiftedTapsMissByFar) {
  const std::vector<float> taps = golden("aux");
  const std::vector<TokenId> block = golden_ids(*golden_, "block_ids");
  const std::vector<float> logits = golden("auto.logits");
  const auto distance = [&](const Change& change, bool shift) {
    const auto drafter = model_->drafter(network_dir(GetParam().drafter), change);
    DrafterPass pass(*model_, *drafter, 64);
    std::vector<float> given = taps;
    if (shift)
      std::rotate(given.begin(), given.begin() + drafter->config().layers.hidden_size, given.end());
    pass.extend(given);
    return max_abs_difference(pass.block(block).logits, logits);
  };
  EXPECT_LE(distance({}, false), kTolerance);
  EXPECT_GT(distance({}, true), 10 * kTolerance);
  const float own = model_->decoder().embed_scale();
  EXPECT_LE(distance(scaled(own), false), kTolerance);
  EXPECT_GT(distance(scaled(3.0F * own), false), 10 * kTolerance);
  EXPECT_GT(distance(with(DraftMask::kCausal), false), 10 * kTolerance);
  // All layers of dflash-qwen3 are full: automatic and bidirectional are the same there.
  if (GetParam().drafter == "dflash-gemma4") {
    EXPECT_GT(distance(with(DraftMask::kBidirectional), false), 10 * kTolerance);
  }
}

TEST_P(DflashGolden, AnIncrementalContextEqualsARebuiltOneBitForBit) {
  const std::vector<float> once = golden("aux");
  std::vector<float> taps = once;  // long enough for the ring of the window to wrap several times
  for (int i = 0; i < 4; ++i) taps.insert(taps.end(), once.begin(), once.end());
  const std::vector<TokenId> block = golden_ids(*golden_, "block_ids");
  const std::size_t width = golden_->find("aux")->shape[1] > 0
                                ? static_cast<std::size_t>(golden_->find("aux")->shape[1])
                                : 1;
  const std::size_t rows = taps.size() / width;
  for (const auto& [mask, name] : kMasks) {
    const auto drafter = model_->drafter(network_dir(GetParam().drafter), with(mask));
    DrafterPass incremental(*model_, *drafter, 16);
    SequenceRng rng(5);
    for (std::size_t done = 0; done < rows;) {
      const std::size_t count = std::min<std::size_t>(rows - done, 1 + rng.below(9));
      incremental.extend(std::span<const float>(taps).subspan(done * width, count * width));
      done += count;
      const DrafterPass::Block got = incremental.block(block);
      if (done % 3 != 0) continue;  // a rebuilt context costs all rows each time
      DrafterPass rebuilt(*model_, *drafter, 256);
      rebuilt.extend(std::span<const float>(taps).first(done * width));
      const DrafterPass::Block expected = rebuilt.block(block);
      ASSERT_EQ(got.hidden, expected.hidden) << name << " after " << done;
      ASSERT_EQ(got.logits, expected.logits) << name << " after " << done;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllBackends,
                         DflashGolden,
                         testing::ValuesIn(drafter_cases(/*with_first_kind=*/true)),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace kakeya::test
