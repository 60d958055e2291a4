// Every way to keep keys and values: the bits of a row depend on nothing but its tokens, going back
// is exact, and one stored vector stands for key and value.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "model/test_model.h"
#include "thorough.h"

namespace kakeya::test {
namespace {

struct KvMode {
  const char* name;
  SessionOptions options;
  Comparison comparison = {};
};

// The demo model has sliding layers with a window of 128 and heads of 32, and full layers with
// heads of 64 whose keys follow from their values.
std::vector<KvMode> kv_modes() {
  const auto of = [](KvType full, KvType sliding) {
    return SessionOptions{.kv_full = full, .kv_sliding = sliding};
  };
  const auto dropping = [&](KvType full, KvType sliding, Evicted on_full, Evicted on_sliding) {
    SessionOptions options = of(full, sliding);
    options.sink = 4;
    options.window = 64;
    options.evicted_full = on_full;
    options.evicted_sliding = on_sliding;
    return options;
  };
  return {{"auto", {}},
          {"pairs", {}, {.kv_pairs = true}},
          {"int8", of(KvType::kInt8, KvType::kInt8)},
          {"e8", of(KvType::kE8, KvType::kE8)},
          {"drop", dropping(KvType::kAuto, KvType::kAuto, Evicted::kDrop, Evicted::kDrop)},
          {"drop full", dropping(KvType::kInt8, KvType::kBf16, Evicted::kDrop, Evicted::kKeep)},
          {"drop sliding", dropping(KvType::kE8, KvType::kInt8, Evicted::kKeep, Evicted::kDrop)}};
}

class KvModes : public testing::Test {
 protected:
  static std::unique_ptr<TestModel> demo(int num_threads, Compute compute = Compute::kFast) {
    return TestModel::load(KAKEYA_DEMO_MODEL, {.name = "cpu", .num_threads = num_threads}, compute);
  }

  static std::vector<float> logits(TestModel& model,
                                   SessionOptions options,
                                   std::span<const TokenId> ids,
                                   std::int64_t chunk,
                                   const Comparison& comparison = {}) {
    options.context = 512;
    options.max_rows = 64;
    const auto timeline = model.timeline(options, 64, {}, comparison);
    return run(*timeline, ids, {}, chunk).logits;
  }
};

TEST_F(KvModes, ChunksAndThreadsChangeNoBit) {
  const auto one = demo(1);
  const auto two = demo(2);
  const std::vector<TokenId> ids = random_ids(300, 1);
  for (const KvMode& mode : kv_modes()) {
    const std::vector<float> expected = logits(*one, mode.options, ids, 1, mode.comparison);
    for (const std::int64_t chunk : {5, 17, 64}) {
      EXPECT_EQ(logits(*two, mode.options, ids, chunk, mode.comparison), expected)
          << mode.name << ", " << chunk;
    }
  }
}

// Blocks of up to 32 rows of which a part is kept, as drafts are, until the rings have wrapped.
TEST_F(KvModes, GoingBackIsExact) {
  const auto model = demo(2);
  const std::int64_t vocab = model->config().vocab_size;
  for (const KvMode& mode : kv_modes()) {
    SessionOptions options = mode.options;
    options.context = 512;
    options.max_rows = 32;
    const auto timeline = model->timeline(options, 32, {}, mode.comparison);
    std::vector<TokenId> tokens = random_ids(3, 8);
    const std::vector<float> last = draft_at_random(*timeline, tokens, 400, 32);
    // The logits of the row that chose the last token, of a fresh timeline.
    tokens.pop_back();
    const std::vector<float> all = logits(*model, mode.options, tokens, 64, mode.comparison);
    EXPECT_EQ(std::vector<float>(all.end() - vocab, all.end()), last) << mode.name;
  }
}

// With f32 rows the one vector gives the pair's logits but for the sines and cosines, which may
// differ by the last bit of f32 (6e-8), and what the later layers make of that.
TEST_F(KvModes, OneVectorStandsForKeyAndValue) {
  // More than a ring has places, which are a window of 128 tokens and a chunk.
  const std::vector<TokenId> ids = random_ids(static_cast<std::size_t>(by_form(210, 300)), 2);
  const SessionOptions options{.kv_full = KvType::kF32, .kv_sliding = KvType::kF32};
  for (const BackendChoice& choice : all_backends()) {
    if (in_plain_loops(choice)) continue;  // minutes for so many tokens
    const auto model = TestModel::load(KAKEYA_DEMO_MODEL, choice, Compute::kF32);
    const std::vector<float> expected = logits(*model, options, ids, 64, {.kv_pairs = true});
    const std::vector<float> got = logits(*model, options, ids, 64);
    double squares = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double difference = static_cast<double>(got[i]) - expected[i];
      squares += difference * difference;
    }
    const double relative =
        std::sqrt(squares / static_cast<double>(got.size())) / root_mean_square(expected);
    EXPECT_LT(relative, 1e-6) << choice.label();
  }
}

std::uint64_t bytes_of(const TestModel& model,
                       SessionOptions options,
                       std::int64_t context,
                       MemoryClass memory_class,
                       const Comparison& comparison = {}) {
  options.context = context;
  const auto plan = plan_timeline(model.config(), options, Compute::kFast, 1, {}, comparison);
  EXPECT_TRUE(plan.has_value()) << plan.error().message();
  return plan->cache.estimate().reserved_bytes(memory_class);
}

// Two full layers with 2 heads of 64.
TEST_F(KvModes, FullLayersTakeTheBytesThatTheirFormatSays) {
  const auto model = demo(1);
  const auto vectors = [&](const Comparison& comparison) {
    const auto plan = plan_timeline(model->config(), {}, Compute::kF32, 1, {}, comparison).value();
    return std::ranges::count_if(plan.cache.layers, &LayerCacheSpec::one_vector);
  };
  EXPECT_EQ(vectors({}), 2);
  EXPECT_EQ(vectors({.kv_pairs = true}), 0);
  const auto per_token = [&](const SessionOptions& options, const Comparison& comparison = {}) {
    return (bytes_of(*model, options, 4096, MemoryClass::kKvFull, comparison) -
            bytes_of(*model, options, 2048, MemoryClass::kKvFull, comparison)) /
           2048;
  };
  EXPECT_EQ(per_token({}), 2U * 2 * 64 * 2);
  EXPECT_EQ(per_token({}, {.kv_pairs = true}), 2U * 2 * 2 * 64 * 2);
  EXPECT_EQ(per_token({.kv_full = KvType::kInt8}), 2U * 2 * (64 + 4));
  EXPECT_EQ(per_token({.kv_full = KvType::kE8}), 2U * 2 * 36);
  EXPECT_EQ(per_token({.window = 64, .evicted_full = Evicted::kDrop}), 0U);
}

TEST_F(KvModes, DroppingBoundsBothClasses) {
  const auto model = demo(1);
  SessionOptions options{.max_rows = 32, .sink = 4, .window = 64};
  options.evicted_full = Evicted::kDrop;
  options.evicted_sliding = Evicted::kDrop;
  const std::uint64_t slots = 4 + 64 + 32 - 1 + 1;  // in two blocks of 50
  EXPECT_EQ(bytes_of(*model, options, 100000, MemoryClass::kKvFull),
            2 * MemoryBudget::charged_bytes(slots * 2 * 64 * 2));
  EXPECT_EQ(bytes_of(*model, options, 100000, MemoryClass::kKvSliding),
            4 * MemoryBudget::charged_bytes(slots * 2 * 4 * 32 * 2));
}

// A window that nothing leaves is the exact model.
TEST_F(KvModes, DroppingNothingIsExact) {
  const auto model = demo(2);
  const std::vector<TokenId> ids = random_ids(300, 3);
  SessionOptions options{.window = 300};
  options.evicted_full = Evicted::kDrop;
  options.evicted_sliding = Evicted::kDrop;
  const std::vector<float> exact = logits(*model, {}, ids, 64);
  EXPECT_EQ(logits(*model, options, ids, 64), exact);
  options.window = 64;
  EXPECT_NE(logits(*model, options, ids, 64), exact);
}

// Nothing of a dropped row is left: other tokens at its place, as far from the last row as the
// layers together reach, change nothing. Six layers of 20 positions; no sink.
TEST_F(KvModes, WhatWasDroppedHasNoInfluence) {
  const auto model = demo(2);
  SessionOptions options{.sink = 0, .window = 20};
  options.evicted_full = Evicted::kDrop;
  options.evicted_sliding = Evicted::kDrop;
  const std::int64_t vocab = model->config().vocab_size;
  const auto last_row = [&](const std::vector<TokenId>& ids) {
    const std::vector<float> all = logits(*model, options, ids, 64);
    return std::vector<float>(all.end() - vocab, all.end());
  };
  std::vector<TokenId> ids = random_ids(300, 4);
  const std::vector<float> expected = last_row(ids);
  const std::size_t reach = 6 * 19;
  for (std::size_t i = 0; i + reach + 1 < ids.size(); ++i) ids[i] = 17;
  EXPECT_EQ(last_row(ids), expected);
  // A row that the last one sees itself: what comes through six layers may change no bit.
  ids[ids.size() - 20] ^= 1;
  EXPECT_NE(last_row(ids), expected);
}

TEST_F(KvModes, WhatCannotBeKeptSoIsRefusedInOneLine) {
  const auto model = demo(1);
  const auto message = [&](const SessionOptions& options) {
    const auto plan = plan_timeline(model->config(), options, Compute::kFast, 1);
    return plan ? "accepted" : plan.error().message();
  };
  EXPECT_EQ(message({.evicted_full = Evicted::kDrop}),
            "rows can be dropped only behind a window; set SessionOptions::window");
  EXPECT_EQ(message({.sink = -1}),
            "SessionOptions::sink and SessionOptions::window must be 0 or more but are -1 and 0");
  KvCacheSpec spec{.layers = {{.num_kv_heads = 1, .head_dim = 40, .format = KvFormat::kE8}},
                   .context = 8};
  EXPECT_EQ(spec.check().error().message(),
            "the KV cache cannot be stored as e8: it takes heads of 8 to 512 elements, a power of "
            "two, but those of full layers have 40 elements");
}

}  // namespace
}  // namespace kakeya::test
