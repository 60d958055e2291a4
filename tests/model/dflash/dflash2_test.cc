// The selector of a DFlash 2 drafter against the published implementation's choices
// (tests/data/networks/dflash2-*): candidates, scores and paths, at temperature 0 and with noise.
// The context comes in pieces, as sessions give it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "model/dflash/drafter_case.h"
#include "model/test_model.h"

namespace kakeya::test {
namespace {

class Dflash2Golden : public testing::TestWithParam<DrafterCase> {
 protected:
  void SetUp() override {
    model_ = TestModel::load(network_dir(GetParam().target), GetParam().backend);
    ASSERT_NE(model_, nullptr);
    golden_ = std::make_unique<SafetensorsFile>(
        SafetensorsFile::open(network_dir(GetParam().drafter) + "/golden.safetensors").value());
    text_ = golden_ids(*golden_, "context_ids");
    text_.push_back(golden_ids(*golden_, "block_ids").front());
  }

  std::vector<float> golden(const std::string& name) { return golden_floats(*golden_, name); }

  std::unique_ptr<dflash::Drafter> drafter(DraftMask mask = DraftMask::kAuto) {
    return model_->drafter(network_dir(GetParam().drafter), [mask](DrafterConfig& config) {
      config = with_mask(std::move(config), mask);
    });
  }

  // A source whose context is the golden's, given in pieces.
  std::unique_ptr<DflashSource> source(const dflash::Drafter& drafter) {
    auto made = model_->dflash_source(drafter, {.context = 128, .max_rows = 16});
    const std::vector<float> taps = golden("aux");
    const auto width = static_cast<std::int64_t>(drafter.config().target_layer_ids.size()) *
                       drafter.config().layers.hidden_size;
    MemorySpace& space = model_->backend().memory();
    Buffer memory =
        model_->budget().allocate(MemoryClass::kActivations, taps.size() * 4, space).value();
    upload(space, std::span<const float>(taps), memory.device<float>());
    const ConstRows all = {memory.device<float>(), std::ssize(taps) / width, width};
    for (std::int64_t done = 0; done < all.count;) {
      const std::int64_t count = std::min<std::int64_t>(all.count - done, 7);
      EXPECT_TRUE(made->reserve_taps(count).has_value());
      made->commit_taps(rows_from(all, done, count));
      done += count;
    }
    return made;
  }

  Sampler sampler(const SamplingOptions& options) {
    Sampler made = Sampler::create(model_->config().vocab_size, model_->budget()).value();
    made.set_options(options, {});
    return made;
  }

  std::vector<TokenId> draft(DflashSource& source, Sampler& sampler, std::size_t count) {
    std::vector<TokenId> drafts(count);
    const Status made = source.draft(text_, sampler, drafts);
    EXPECT_TRUE(made.has_value()) << made.error().message();
    return drafts;
  }

  // The walk as its equation says, on the golden's scores [n, k, k]: `noise(row, id)` and
  // temperature 0 for none.
  template <typename Noise>
  std::vector<TokenId> walk(float temperature, const Noise& noise) {
    const std::vector<TokenId> candidates = golden_ids(*golden_, "auto.candidates");
    const std::vector<float> scores = golden("auto.scores");
    const std::size_t k = golden_->find("auto.candidates")->shape[1];
    std::vector<TokenId> path;
    std::size_t before = 0;
    for (std::size_t row = 0; row < candidates.size() / k; ++row) {
      std::size_t best = 0;
      double best_value = -INFINITY;
      for (std::size_t b = 0; b < k; ++b) {
        const TokenId id = candidates[row * k + b];
        double value = scores[(row * k + before) * k + b];
        if (temperature > 0.0F) value = value / temperature + noise(row, id);
        if (value > best_value) best = b, best_value = value;
      }
      path.push_back(candidates[row * k + best]);
      before = best;
    }
    return path;
  }

  std::unique_ptr<TestModel> model_;
  std::unique_ptr<SafetensorsFile> golden_;
  std::vector<TokenId> text_;  // the context and the known token
};

TEST_P(Dflash2Golden, TakesThePublishedPathForEveryMask) {
  for (const auto& [mask, name] :
       {std::pair(DraftMask::kAuto, "auto"), std::pair(DraftMask::kCausal, "causal"),
        std::pair(DraftMask::kBidirectional, "bidirectional")}) {
    const auto own = drafter(mask);
    ASSERT_NE(own, nullptr);
    Sampler greedy = sampler({});
    const std::vector<TokenId> path = golden_ids(*golden_, std::string(name) + ".path_ids");
    EXPECT_EQ(draft(*source(*own), greedy, path.size()), path) << name;
    EXPECT_NE(path, golden_ids(*golden_, std::string(name) + ".argmax_ids"))
        << "a drafter without a selector would pass";
  }
}

TEST_P(Dflash2Golden, TakesThePublishedPathOfAShortBlock) {
  const auto own = drafter();
  ASSERT_NE(own, nullptr);
  text_.back() = golden_ids(*golden_, "short.block_ids").front();
  Sampler greedy = sampler({});
  EXPECT_EQ(draft(*source(*own), greedy, 3), golden_ids(*golden_, "short.path_ids"));
}

// The golden's noise shows that the walk of this test is the published one; then that walk has the
// noise that a target meets at the positions of the drafts.
TEST_P(Dflash2Golden, WalksWithTheNoiseOfTheTarget) {
  const float temperature = golden("temperature").front();
  const std::vector<float> noise = golden("noise");
  const auto vocab = static_cast<std::size_t>(model_->config().vocab_size);
  ASSERT_EQ(walk(temperature,
                 [&](std::size_t row, TokenId id) {
                   return noise[row * vocab + static_cast<std::size_t>(id)];
                 }),
            golden_ids(*golden_, "auto.noisy_ids"));
  const auto own = drafter();
  ASSERT_NE(own, nullptr);
  int differ = 0;
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    for (const float t : {0.3F, temperature, 1.5F}) {
      Sampler noisy = sampler({.temperature = t, .seed = seed});
      const std::vector<TokenId> expected = walk(t, [&](std::size_t row, TokenId id) {
        return gumbel_noise(seed, std::ssize(text_) + static_cast<Position>(row), id);
      });
      EXPECT_EQ(draft(*source(*own), noisy, expected.size()), expected) << seed << " at " << t;
      differ += expected == golden_ids(*golden_, "auto.path_ids") ? 0 : 1;
    }
  }
  EXPECT_GT(differ, 0) << "no noise changed anything";
}

// Blocks of two sequences in one pass, of different lengths: neither's convolutions nor its walk
// see the other's rows.
TEST_P(Dflash2Golden, DraftsForSeveralSequencesAsForEachAlone) {
  const auto own = drafter();
  ASSERT_NE(own, nullptr);
  const std::vector<TokenId> path = golden_ids(*golden_, "auto.path_ids");
  ASSERT_OK(model_->workspace().reserve(
      plan_drafter_passes(own->config(), 2 * own->config().block_size, 2 * std::ssize(path), 16)));
  const auto first = source(*own);
  const auto second = source(*own);
  Sampler greedy = sampler({});
  Sampler noisy = sampler({.temperature = 0.8F, .seed = 9});
  std::vector<TokenId> alone = draft(*source(*own), noisy, 3);
  std::vector<TokenId> shorter(3);
  std::vector<TokenId> whole(path.size());
  const std::vector<DraftJob> jobs = {
      {.source = first.get(), .tokens = text_, .sampler = &noisy, .out = shorter},
      {.source = second.get(), .tokens = text_, .sampler = &greedy, .out = whole}};
  const Workspace::Turn turn = model_->workspace().take_turn();
  ContextWork work;
  ASSERT_OK(DflashSource::draft_together(jobs, work));
  EXPECT_EQ(shorter, alone);
  EXPECT_EQ(whole, path);
}

// Allows some tokens, whatever came before.
class Only final : public Constraint {
 public:
  explicit Only(std::vector<TokenId> allowed) : allowed_(std::move(allowed)) {}
  bool fill_mask(std::span<std::uint32_t> mask) override {
    for (const TokenId id : allowed_) {
      mask[static_cast<std::size_t>(id) / 32] |= 1U << (static_cast<std::size_t>(id) % 32);
    }
    return true;
  }
  bool advance(TokenId id) override { return std::ranges::count(allowed_, id) > 0; }
  void roll_back(std::int64_t /*count*/) override {}

 private:
  std::vector<TokenId> allowed_;
};

// A form may allow none of the candidates of a row.
TEST_P(Dflash2Golden, DraftsWhatAFormAllows) {
  const auto own = drafter();
  ASSERT_NE(own, nullptr);
  const std::vector<TokenId> candidates = golden_ids(*golden_, "auto.candidates");
  const std::vector<TokenId> path = golden_ids(*golden_, "auto.path_ids");
  std::vector<TokenId> others;
  for (TokenId id = 0; others.size() < 3; ++id) {
    const bool is_mask = id == own->config().mask_token_id;
    if (!is_mask && std::ranges::count(candidates, id) == 0) others.push_back(id);
  }
  for (std::vector<TokenId> allowed : {others, std::vector{others[0], path[0], path[2]}}) {
    Only form(allowed);
    Sampler held = sampler({});
    held.set_constraint(&form);
    for (const TokenId id : draft(*source(*own), held, path.size())) {
      EXPECT_GT(std::ranges::count(allowed, id), 0) << id;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllBackends,
                         Dflash2Golden,
                         testing::ValuesIn(drafter_cases(/*with_first_kind=*/false)),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace kakeya::test
