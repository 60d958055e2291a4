// Matters of MLX alone: addresses as names of arrays, and when they are run. Operations and
// networks are in the tests of all backends.
#include "backend/mlx/mlx_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "backend/backend.h"
#include "backend/backend_fixture.h"
#include "base/memory_budget.h"
#include "runtime/engine_impl.h"

namespace kakeya {
namespace {

class MlxNames : public testing::Test {
 protected:
  void SetUp() override {
    if (!mlx::missing().empty()) GTEST_SKIP() << mlx::missing();
    backend_ = create_backend({.name = "mlx", .threads = {}}).value();
    executor_ = backend_->create_executor({}, budget_).value();
  }
  Buffer allocate(std::size_t floats) {
    return budget_.allocate(MemoryClass::kActivations, floats * sizeof(float), backend_->memory())
        .value();
  }
  // Numbered from `first` on.
  void number(DevicePointer<float> to, std::size_t count, float first) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), first);
    upload(backend_->memory(), std::span<const float>(values), to);
  }
  std::vector<float> get(DevicePointer<float> from, std::size_t count) {
    std::vector<float> values(count);
    download(backend_->memory(), DevicePointer<const float>(from), std::span(values));
    return values;
  }

  MemoryBudget budget_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Executor> executor_;
};

using Floats = std::vector<float>;

TEST_F(MlxNames, PartsOfWhatWasWrittenAreReadAndReplaced) {
  const Buffer buffer = allocate(8);
  const DevicePointer<float> at = buffer.device<float>();
  number(at, 8, 0.0F);
  executor_->add({at, 2, 4}, {at, 2, 4}, 1.0F, {at, 2, 4});          // 0 2 4 ... 14
  executor_->add({at + 4, 1, 4}, {at, 1, 4}, 1.0F, {at + 2, 1, 4});  // 8 12 16 20 at 2
  EXPECT_EQ(get(at, 8), (Floats{0, 2, 8, 12, 16, 20, 12, 14}));
  number(at + 3, 2, 50.0F);
  executor_->add({at, 2, 4}, {at, 2, 4}, 0.5F, {at, 2, 4});
  EXPECT_EQ(get(at, 8), (Floats{0, 2, 8, 50, 51, 20, 12, 14}));
  EXPECT_EQ(get(at + 3, 2), (Floats{50, 51}));
}

TEST_F(MlxNames, CopiesKeepWhatTheyWereMadeOf) {
  const Buffer from = allocate(4);
  const Buffer to = allocate(6);
  const Rows rows{from.device<float>(), 1, 4};
  number(rows.data, 4, 1.0F);
  executor_->add(rows, rows, 1.0F, rows);  // 2 4 6 8
  MemorySpace& space = backend_->memory();
  space.fill(to.device<std::byte>(), std::byte{0}, 24);
  space.copy(from.device<std::byte>(), (to.device<float>() + 1).as<std::byte>(), 16);
  executor_->add(rows, rows, 1.0F, rows);
  EXPECT_EQ(get(to.device<float>(), 6), (Floats{0, 2, 4, 6, 8, 0}));
  // Three bytes of it, and overlapping ones.
  space.copy((to.device<float>() + 1).as<std::byte>(), to.device<std::byte>(), 16);
  EXPECT_EQ(get(to.device<float>(), 6), (Floats{2, 4, 6, 8, 8, 0}));
}

TEST_F(MlxNames, OperationsRunTogetherWhenSomethingIsAskedFor) {
  const Buffer buffer = allocate(4);
  const Rows rows{buffer.device<float>(), 1, 4};
  number(rows.data, 4, 1.0F);
  const mlx::Counters before = mlx::counters(*backend_);
  for (int i = 0; i < 5; ++i) executor_->add(rows, rows, 1.0F, rows);
  EXPECT_EQ(mlx::counters(*backend_).evaluations, before.evaluations);
  EXPECT_EQ(get(rows.data, 4), (Floats{32, 64, 96, 128}));
  const mlx::Counters after = mlx::counters(*backend_);
  EXPECT_EQ(after.evaluations, before.evaluations + 1);
  EXPECT_EQ(after.operations, before.operations + 5);
  EXPECT_EQ(after.primitives, before.primitives + 5);
}

// Activations end with their pass; what was copied or stored stays, the parts around what was
// written over, too.
TEST_F(MlxNames, TheEndOfAPassKeepsWhatIsKept) {
  const Buffer from = allocate(6);
  const Buffer to = allocate(6);
  const Rows rows{from.device<float>(), 1, 6};
  number(rows.data, 6, 1.0F);
  executor_->add(rows, rows, 1.0F, rows);  // 2 4 6 8 10 12, not run
  backend_->memory().copy(from.device<std::byte>(), to.device<std::byte>(), 24);
  const Rows middle{to.device<float>() + 2, 1, 2};
  executor_->add(middle, middle, 1.0F, middle);
  const mlx::Counters before = mlx::counters(*backend_);
  ASSERT_TRUE(executor_->end(std::vector<ConstRows>{middle}).has_value());
  EXPECT_EQ(mlx::counters(*backend_).evaluations, before.evaluations + 1);
  EXPECT_EQ(get(to.device<float>(), 6), (Floats{2, 4, 12, 16, 10, 12}));
  EXPECT_EQ(mlx::counters(*backend_).evaluations, before.evaluations + 1);
}

// Rows of all sizes, one of zeros, one that is not finite, one of numbers that barely are. Sums of
// a rotation may be rounded otherwise, and a number between two codes then has the other one.
TEST(MlxRows, CodedRowsHaveTheBytesOfTheirFormat) {
  if (!mlx::missing().empty()) GTEST_SKIP() << mlx::missing();
  constexpr std::int64_t kSlots = 6;
  constexpr std::int64_t kHeads = 2;
  constexpr std::int64_t kHeadDim = 64;
  constexpr std::int64_t kWidth = kHeads * kHeadDim;
  Machine machine({.instruction_set = "mlx"});
  std::vector<float> rows = random_floats(kSlots * kWidth, 21);
  const auto scale = [&](std::int64_t row, float by) {
    for (std::int64_t i = 0; i < kWidth; ++i)
      rows[static_cast<std::size_t>(row * kWidth + i)] *= by;
  };
  scale(1, 0.0F);
  scale(2, 1e-37F);
  scale(3, 1e37F);
  rows[4 * kWidth + 3] = INFINITY;
  for (const KvFormat format : {KvFormat::kInt8, KvFormat::kE8}) {
    KvRows kv = {.block_slots = kSlots,
                 .format = format,
                 .capacity = kSlots,
                 .num_kv_heads = kHeads,
                 .head_dim = kHeadDim};
    std::vector<std::byte> stored(static_cast<std::size_t>(kSlots * kv.slot_bytes()));
    const DevicePointer<std::byte> block = device(stored.data());
    kv.values = &block;
    machine.store({}, rows_of(rows, kWidth), 0, kv);
    const bool is_rotated = format == KvFormat::kE8;
    std::int64_t different = 0;
    for (std::int64_t vector = 0; vector < kSlots * kHeads; ++vector) {
      const float* x = rows.data() + vector * kHeadDim;
      const std::byte* got = stored.data() + vector * kv.vector_bytes();
      std::vector<std::byte> expected(static_cast<std::size_t>(kv.vector_bytes()));
      encode_kv(format, x, kHeadDim, expected.data());
      std::vector<float> back(kHeadDim);
      decode_kv(format, got, kHeadDim, back.data());
      if (vector == 4 * kHeads) {  // any NaN will do
        EXPECT_TRUE(std::isnan(back[3])) << kv_format_name(format);
        continue;
      }
      for (std::size_t i = 0; i < expected.size(); ++i) {
        // The low bits of a scale behind a rotation.
        if (is_rotated && i < sizeof(float)) continue;
        different += got[i] == expected[i] ? 0 : 1;
      }
    }
    EXPECT_LE(different, is_rotated ? 2 : 0) << kv_format_name(format);
  }
}

TEST(MlxDevices, AreNamedAndRefusedByName) {
  const auto open = [](const char* name) { return create_backend({.name = name, .threads = {}}); };
  if (!mlx::missing().empty()) GTEST_SKIP() << mlx::missing();
  EXPECT_EQ(open("mlx/cpu").value()->name(), "mlx/cpu");
  EXPECT_TRUE(open("mlx/cpu").value()->is_row_invariant());
  EXPECT_EQ(mlx::create_mlx_kernels_backend().value()->name(), "mlx/kernels");
  EXPECT_EQ(open("mlx").value()->name(), mlx::gpu() ? "mlx/gpu" : "mlx/cpu");
  const auto other = open("mlx/npu");
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().message(),
            "EngineOptions::backend must be mlx, mlx/cpu or mlx/gpu but is 'mlx/npu'");
  if (mlx::gpu()) return;
  const auto gpu = open("mlx/gpu");
  ASSERT_FALSE(gpu.has_value());
  EXPECT_EQ(gpu.error().message(), "backend mlx/gpu is not available: MLX finds no GPU here");
}

// With the demo model, which has six layers.
std::unique_ptr<EngineImpl> open_demo_model(const std::string& backend = "mlx",
                                            const BackendWrapper& wrapper = {}) {
  return EngineImpl::open({.model_dir = KAKEYA_DEMO_MODEL,
                           .backend = backend,
                           .session = {.context = 256, .max_rows = 64},
                           .draft = {.source = "none"}},
                          wrapper)
      .value();
}

TEST(MlxPasses, AStepIsOneEvaluation) {
  if (!mlx::missing().empty()) GTEST_SKIP() << mlx::missing();
  const auto engine = open_demo_model();
  const auto session = engine->create_session().value();
  ASSERT_TRUE(session->append(std::vector<TokenId>(100, 17)).has_value());
  const auto evaluations = [&] { return mlx::counters(engine->backend()).evaluations; };
  // Two parts of the prompt, and a pass for each token behind the first.
  const std::uint64_t before = evaluations();
  ASSERT_TRUE(session->generate({.max_tokens = 5, .ignore_model_stop_ids = true}).has_value());
  EXPECT_EQ(evaluations() - before, 2U + 4U);
}

std::uint64_t primitives_of_a_step(const BackendWrapper& wrapper = {}) {
  const auto engine = open_demo_model("mlx/cpu", wrapper);
  const auto session = engine->create_session().value();
  EXPECT_TRUE(session->append(std::vector<TokenId>(100, 17)).has_value());
  const GenerateOptions two_tokens{.max_tokens = 2, .ignore_model_stop_ids = true};
  // Everything that is made once is made now.
  EXPECT_TRUE(session->generate(two_tokens).has_value());
  const mlx::Counters before = mlx::counters(engine->backend());
  EXPECT_TRUE(session->generate(two_tokens).has_value());
  const mlx::Counters after = mlx::counters(engine->backend());
  const std::uint64_t steps = after.evaluations - before.evaluations;
  EXPECT_EQ(steps, 2U);
  return (after.primitives - before.primitives) / steps;
}

// The limits are what there is: whoever adds a primitive to each layer sees it here.
TEST(MlxPasses, AStepHasFewPrimitives) {
  if (!mlx::missing().empty()) GTEST_SKIP() << mlx::missing();
  // On this device each of its 65 norms is eleven, attention many, and no array is used as it lies.
  EXPECT_LE(primitives_of_a_step(), 1735U);
  const auto kernels = [](std::unique_ptr<Backend> /*replaced*/) {
    return mlx::create_mlx_kernels_backend().value();
  };
  EXPECT_LE(primitives_of_a_step(kernels), 1305U);
}

// 2,000 passes, over the same positions again and again: MLX has no more memory behind them, and no
// more than the ledger says but for a constant.
TEST(MlxPasses, ManyStepsTakeNoMoreMemory) {
  if (!mlx::missing().empty()) GTEST_SKIP() << mlx::missing();
  const std::uint64_t others =
      mlx::counters(*create_backend({.name = "mlx", .threads = {}}).value()).active_bytes;
  const auto engine = EngineImpl::open({.model_dir = KAKEYA_TEST_DATA "/networks/gemma4-moe",
                                        .backend = "mlx",
                                        .session = {.context = 96, .max_rows = 64},
                                        .draft = {.source = "none"}})
                          .value();
  const auto session = engine->create_session().value();
  ASSERT_TRUE(session->append(std::vector<TokenId>(40, 17)).has_value());
  // MLX counts the buffers that arrays lie in. One that it reuses may be larger than was asked for,
  // as the timing of its thread has it: by 3 KiB in all. The least of many counts has little of it.
  const auto least_of_passes = [&](int generations) {
    mlx::Counters counters;
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    for (int i = 0; i < generations; ++i) {
      EXPECT_TRUE(session->generate({.max_tokens = 50, .ignore_model_stop_ids = true}).has_value());
      EXPECT_TRUE(session->truncate(40).has_value());
      counters = mlx::counters(engine->backend());
      least = std::min(least, counters.active_bytes);
    }
    counters.active_bytes = least;
    return counters;
  };
  const mlx::Counters before = least_of_passes(10);
  least_of_passes(20);
  const mlx::Counters after = least_of_passes(10);
  EXPECT_GE(after.evaluations - before.evaluations, 1500U);
  // A float that each pass keeps would be half as much again: 1500 passes lie between the least of
  // both.
  EXPECT_LE(after.active_bytes, before.active_bytes + 4096);
  EXPECT_LE(after.cached_bytes, std::uint64_t{32} << 20);
  EXPECT_LE(after.active_bytes - others, engine->footprint().total_reserved());
}

// A prompt of 500 tokens: what MLX has at most in a pass is charged, and not much more.
TEST(MlxPasses, TheLedgerHasWhatPassesTake) {
  if (!mlx::missing().empty()) GTEST_SKIP() << mlx::missing();
  for (const bool restores : {false, true}) {
    SessionOptions session{.context = 512, .max_rows = 8};
    if (restores) {
      session.window = 64;
      session.evicted_full = session.evicted_sliding = Evicted::kRestore;
    }
    const auto engine = EngineImpl::open({.model_dir = KAKEYA_DEMO_MODEL,
                                          .backend = "mlx/cpu",
                                          .session = session,
                                          .draft = {.source = restores ? "auto" : "none"}})
                            .value();
    const auto running = engine->create_session().value();
    ASSERT_TRUE(running->append(std::vector<TokenId>(500, 17)).has_value());
    mlx::counters(engine->backend());
    ASSERT_TRUE(running->generate({.max_tokens = 1, .ignore_model_stop_ids = true}).has_value());
    const mlx::Counters after = mlx::counters(engine->backend());
    const std::uint64_t taken = after.peak_bytes - after.active_bytes;
    const std::uint64_t charged = engine->footprint().reserved_bytes(MemoryClass::kActivations);
    EXPECT_LE(taken, charged) << restores;
    EXPECT_LE(charged, 2 * taken) << restores;
  }
}

}  // namespace
}  // namespace kakeya
