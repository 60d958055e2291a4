// The driver of cards, over a stand-in for NVIDIA's library (fake_libcuda.cc): what it asks of the
// library, in which order, what it computes, and what it says when something fails. What a card
// does is not seen here.
#include "backend/cuda/cuda_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/choose.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_driver_fixture.h"
#include "backend/cuda/libcuda.h"

namespace kakeya::cuda {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Floats in the memory of a driver.
class Floats {
 public:
  Floats(Driver& driver, std::vector<float> values)
      : driver_(driver),
        count_(values.size()),
        buffer_(
            budget_.allocate(MemoryClass::kActivations, count_ * sizeof(float), space()).value()) {
    write(values);
  }
  MemorySpace& space() const { return driver_.memory(); }
  DevicePointer<float> data() const { return buffer_.device<float>(); }
  void write(const std::vector<float>& values) {
    upload(space(), std::span<const float>(values), data());
  }
  std::vector<float> read() const {
    std::vector<float> values(count_);
    download(space(), DevicePointer<const float>(data()), std::span(values));
    return values;
  }
  // Each is doubled.
  Status add(std::uint32_t shared_words = 0) {
    const device::AddParams parameters = {data().address(), data().address(), 1.0F,
                                          static_cast<std::int64_t>(count_), data().address()};
    const auto blocks = static_cast<std::int64_t>((count_ + 127) / 128);
    LaunchList launches;
    launches.add(Kernel::add, {blocks, 1, 128, shared_words}, &parameters);
    return driver_.launch(launches);
  }

 private:
  Driver& driver_;
  std::size_t count_;
  MemoryBudget budget_;
  Buffer buffer_;
};

std::vector<float> count_up(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  return values;
}

TEST_F(CudaDriver, CopiesAndLaunchesTakeEffectInTheirOrder) {
  const auto driver = create();
  Floats floats(*driver, {1.0F, 2.0F, 3.0F});
  ASSERT_TRUE(floats.add());
  // Nobody needs it when the upload returns.
  std::vector<float> other(3, 10.0F);
  floats.write(other);
  other.assign(3, 77.0F);
  ASSERT_TRUE(floats.add());
  ASSERT_TRUE(floats.add());
  EXPECT_EQ(floats.read(), std::vector<float>(3, 40.0F));
  floats.space().fill(floats.data().as<std::byte>(), std::byte{0}, 8);
  EXPECT_EQ(floats.read(), (std::vector<float>{0.0F, 0.0F, 40.0F}));
  ASSERT_TRUE(driver->synchronize());
}

TEST_F(CudaDriver, GivesMemoryBackWhenWhatUsesItHasRun) {
  const auto driver = create();
  {
    Floats floats(*driver, {1.0F});
    ASSERT_TRUE(floats.add());
  }
  EXPECT_EQ(record().releases, 1);
  EXPECT_EQ(record().misuses, 0) << record().misuse;
}

TEST_F(CudaDriver, WaitsOnlyForWhatWasBegunAndSpinsMeanwhile) {
  const auto driver = create();
  EXPECT_EQ(record().context_flags, libcuda::kSpins);
  Floats floats(*driver, {1.0F});
  const std::int64_t before = record().waits;
  ASSERT_TRUE(floats.add());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(driver->synchronize());
  EXPECT_EQ(record().waits, before + 1);
  const std::shared_ptr<std::byte> pinned = driver->pin(2 * sizeof(float)).value();
  const float two = 2.0F;
  std::memcpy(pinned.get(), &two, sizeof(two));
  driver->begin_upload({pinned.get(), sizeof(float)}, floats.data().as<std::byte>());
  ASSERT_TRUE(floats.add());
  EXPECT_EQ(record().waits, before + 1);
  ASSERT_TRUE(driver->synchronize());
  EXPECT_EQ(record().waits, before + 2);
  EXPECT_EQ(floats.read(), std::vector<float>{4.0F});
}

// The library, which is asked now and then, waits for nothing.
TEST_F(CudaDriver, LearnsFromAKernelThatLaunchesHaveEnded) {
  const auto driver = create();
  Floats floats(*driver, {1.0F, 2.0F});
  const std::shared_ptr<std::byte> pinned = driver->pin(2 * sizeof(std::int64_t)).value();
  const auto numbers = std::span(reinterpret_cast<std::int64_t*>(pinned.get()), 2);
  numbers[0] = 7;
  numbers[1] = 0;
  const std::int64_t before = record().waits;
  ASSERT_TRUE(floats.add());
  LaunchList launches;
  const device::TellHostParams parameters = {&numbers[0], &numbers[1]};
  launches.add(Kernel::tell_host, {}, &parameters);
  ASSERT_TRUE(driver->launch(launches));
  ASSERT_TRUE(driver->await(numbers[1], 7));
  EXPECT_EQ(record().waits, before);
  EXPECT_EQ(driver->await(numbers[1], 8).error().message(),
            "cuda:0: a pass ended without telling the host");
}

TEST_F(CudaDriver, CopiesBetweenPiecesThatOverlap) {
  const auto driver = create();
  constexpr std::size_t kCount = 100;
  for (const std::size_t distance : {1U, 7U, 60U}) {
    const std::vector<float> values = count_up(kCount);
    Floats down(*driver, values);
    Floats up(*driver, values);
    const auto at = [](const Floats& floats, std::size_t index) {
      return (floats.data() + static_cast<std::int64_t>(index)).as<std::byte>();
    };
    const std::uint64_t bytes = (kCount - distance) * sizeof(float);
    down.space().copy(at(down, distance), at(down, 0), bytes);
    up.space().copy(at(up, 0), at(up, distance), bytes);
    const std::vector<float> got_down = down.read();
    const std::vector<float> got_up = up.read();
    for (std::size_t i = 0; i < kCount - distance; ++i) {
      ASSERT_EQ(got_down[i], values[i + distance]);
      ASSERT_EQ(got_up[i + distance], values[i]);
    }
  }
}

TEST_F(CudaDriver, AsksForLargeSharedMemoryOnce) {
  const auto driver = create();
  Floats floats(*driver, {1.0F});
  ASSERT_TRUE(floats.add(12 << 10));
  EXPECT_EQ(record().attributes, 0);
  ASSERT_TRUE(floats.add(20 << 10));
  ASSERT_TRUE(floats.add(18 << 10));
  EXPECT_EQ(record().attributes, 1);
  EXPECT_EQ(floats.read(), (std::vector<float>{8.0F}));
}

// More than half of what a multiprocessor has, so that a second block has no room there.
TEST_F(CudaDriver, SpreadsTheBlocksOfALaunch) {
  const auto driver = create();
  EXPECT_EQ(record().carveouts, std::ssize(kKernelNames));
  Floats floats(*driver, {1.0F});
  const device::AddParams parameters = {floats.data().address(), floats.data().address(), 1.0F, 1,
                                        floats.data().address()};
  LaunchList list;
  list.add(Kernel::add, {1, 1, 128, 64}, &parameters);
  ASSERT_TRUE(driver->launch(list));
  EXPECT_LT(record().most_shared_bytes, 1024);
  list.add(Kernel::add, {1, 1, 128, 64, /*is_spread=*/true}, &parameters);
  ASSERT_TRUE(driver->launch(list));
  ASSERT_TRUE(driver->synchronize());
  EXPECT_GT(2 * (record().most_shared_bytes + 1024), fake::kSharedBytes);
  EXPECT_LT(record().most_shared_bytes, fake::kSharedBytes / 2);
}

// Ten launches or so, each of which doubles the first `count` floats.
LaunchList doublings(const Floats& floats,
                     std::size_t launches,
                     std::int64_t count,
                     const LaunchShape& shape = {1, 1, 128, 0}) {
  LaunchList list;
  for (std::size_t i = 0; i < launches; ++i) {
    const device::AddParams parameters = {floats.data().address(), floats.data().address(), 1.0F,
                                          i == 2 ? count : 3, floats.data().address()};
    list.add(Kernel::add, shape, &parameters);
  }
  return list;
}

TEST_F(CudaDriver, LaunchesAListThatComesAgainAsAGraph) {
  const auto driver = create();
  Floats floats(*driver, {1.0F, 1.0F, 1.0F});
  ASSERT_TRUE(driver->launch(doublings(floats, 8, 3)));
  EXPECT_EQ(record().graphs, 0) << "it came once";
  ASSERT_TRUE(driver->launch(doublings(floats, 8, 3)));
  EXPECT_EQ(floats.read(), std::vector<float>(3, 0x1p16F));
  EXPECT_EQ(record().graphs, 1);
  // The parameters that one kernel is handed differ, and later are as they were.
  ASSERT_TRUE(driver->launch(doublings(floats, 8, 1)));
  EXPECT_EQ(record().set_nodes, 1);
  ASSERT_TRUE(driver->launch(doublings(floats, 8, 1)));
  EXPECT_EQ(record().set_nodes, 1);
  ASSERT_TRUE(driver->launch(doublings(floats, 8, 3)));
  EXPECT_EQ(floats.read(), (std::vector<float>{0x1p40F, 0x1p38F, 0x1p38F}));
  EXPECT_EQ(record().set_nodes, 2);
  EXPECT_EQ(record().graphs, 1);
  EXPECT_EQ(record().graph_launches, 4);
}

// As passes of more rows: nothing is set when they take turns.
TEST_F(CudaDriver, KeepsAGraphForEachShapeOfAList) {
  const auto driver = create();
  Floats floats(*driver, {1.0F, 1.0F, 1.0F});
  for (int turn = 0; turn < 4; ++turn) {
    ASSERT_TRUE(driver->launch(doublings(floats, 8, 3)));
    ASSERT_TRUE(driver->launch(doublings(floats, 8, 1, {2, 1, 128, 0})));
  }
  EXPECT_EQ(record().graphs, 2);
  EXPECT_EQ(record().graph_launches, 6);
  EXPECT_EQ(record().set_nodes, 0);
}

// From compute capability 9.0 on.
TEST_F(CudaDriver, LetsKernelsOfGraphsStartEarlyWhereTheCardCan) {
  for (const bool can : {true, false}) {
    set(can ? "capability=90" : "capability=89");
    const auto driver = create();
    const std::int64_t before = record().early_starts;
    Floats floats(*driver, {1.0F, 1.0F, 1.0F});
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(driver->launch(doublings(floats, 8, 3)));
    EXPECT_EQ(floats.read(), std::vector<float>(3, 0x1p16F));
    EXPECT_EQ(record().early_starts - before, can ? 7 : 0);
  }
}

TEST_F(CudaDriver, KeepsTheGraphsOfListsThatComeOften) {
  const auto driver = create();
  Floats floats(*driver, {0.0F, 0.0F, 0.0F});
  for (std::size_t other = 9; other < 100; ++other) {
    ASSERT_TRUE(driver->launch(doublings(floats, 8, 3)));
    ASSERT_TRUE(driver->launch(doublings(floats, other, 3)));
  }
  EXPECT_EQ(record().graphs, 1);
  EXPECT_EQ(record().graph_launches, 90);
  // Too short for one.
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(driver->launch(doublings(floats, 7, 3)));
  EXPECT_EQ(record().graphs, 1);
}

// As ALaunchThatIsRefused..., where a graph is refused: its launches are made one by one.
TEST_F(CudaDriver, NamesTheKernelOfAGraphThatIsRefused) {
  set("fail_launch=9");
  const auto driver = create();
  Floats floats(*driver, {1.0F, 1.0F, 1.0F});
  ASSERT_TRUE(driver->launch(doublings(floats, 8, 3)));
  ASSERT_TRUE(driver->launch(doublings(floats, 8, 3)));
  EXPECT_EQ(record().graph_launches, 1);
  EXPECT_EQ(floats.read(), std::vector<float>(3, 0x1p16F));
  LaunchList impossible = doublings(floats, 8, 3);
  impossible.add(Kernel::softcap, {1, 1, 128, 1 << 20}, impossible.parameters(0));
  const Status refused = driver->launch(impossible);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), StartsWith("cuda:0 refuses kernel softcap: "));
}

TEST_F(CudaDriver, ServesSeveralThreads) {
  const auto driver = create();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&driver, t] {
      for (int i = 0; i < 20; ++i) {
        const auto value = static_cast<float>(100 * t + i);
        Floats floats(*driver, std::vector<float>(200, value));
        EXPECT_TRUE(floats.add());
        EXPECT_EQ(floats.read(), std::vector<float>(200, 2.0F * value));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CudaDriver, IsOneOfSeveralOnACard) {
  const auto first = create();
  Floats floats(*first, {1.0F});
  {
    const auto second = create();
    Floats others(*second, {3.0F});
    ASSERT_TRUE(floats.add());
    ASSERT_TRUE(others.add());
    EXPECT_EQ(others.read(), std::vector<float>{6.0F});
  }
  ASSERT_TRUE(floats.add());
  EXPECT_EQ(floats.read(), std::vector<float>{4.0F});
}

TEST_F(CudaDriver, ALaunchThatIsRefusedEndsItsPassAndNoOther) {
  set("fail_launch=2");
  const auto backend = create_backend_on(create());
  MemoryBudget budget;
  const auto executor = backend->create_executor({}, budget).value();
  const Buffer buffer = budget.allocate(MemoryClass::kActivations, 256, backend->memory()).value();
  const Rows rows = {buffer.device<float>(), 1, 64};
  for (int i = 0; i < 3; ++i) executor->softcap(rows, 1.0F);
  const Status status = executor->end({});
  EXPECT_EQ(record().launches, 2);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), StatusCode::kInternal);
  EXPECT_EQ(status.error().message(),
            "cuda:0 refuses kernel softcap: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (too many resources "
            "requested for launch)");
  executor->softcap(rows, 1.0F);
  EXPECT_TRUE(executor->end({}));
}

TEST_F(CudaDriver, AKernelThatFailsEndsEverythingWithOneLine) {
  set("fault_launch=2");
  const auto driver = create();
  Floats floats(*driver, {1.0F});
  ASSERT_TRUE(floats.add());
  ASSERT_TRUE(floats.add());
  ASSERT_TRUE(floats.add());
  const Status status = driver->synchronize();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), StatusCode::kUnavailable);
  const std::string& line = status.error().message();
  EXPECT_EQ(line,
            "cuda:0, kernel add or one before it (CUDA_LAUNCH_BLOCKING=1 tells which): "
            "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)");
  const std::int64_t calls = record().calls;
  EXPECT_EQ(floats.add().error().message(), line);
  EXPECT_EQ(driver->synchronize().error().message(), line);
  EXPECT_TRUE(std::isnan(floats.read()[0]));
  floats.write({1.0F});
  MemoryBudget budget;
  const auto refused = budget.allocate(MemoryClass::kActivations, 64, driver->memory());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message(), line);
  EXPECT_EQ(record().calls, calls) << "the library was asked again";
}

// Where the library tells it at the next launch.
TEST_F(CudaDriver, AKernelThatFailsIsNotTakenForALaunchThatIsRefused) {
  set("eager=1 fault_launch=1");
  const auto backend = create_backend_on(create());
  MemoryBudget budget;
  const auto executor = backend->create_executor({}, budget).value();
  const Buffer buffer = budget.allocate(MemoryClass::kActivations, 256, backend->memory()).value();
  for (int pass = 0; pass < 3; ++pass) {
    for (int i = 0; i < 2; ++i) executor->softcap({buffer.device<float>(), 1, 64}, 1.0F);
    const Status status = executor->end({});
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message(), StartsWith("cuda:0, kernel softcap or one before it"));
  }
}

// No token is made of what a card that failed has left behind.
TEST_F(CudaDriver, AChoiceThatFailsChoosesNothing) {
  for (const bool fails : {false, true}) {
    set(fails ? "fault_launch=1" : "");
    const auto backend = create_backend_on(create());
    MemoryBudget budget;
    ExecutorPlan plan;
    plan.max_rows = 4;
    plan.max_query_width = 64;
    const auto executor = backend->create_executor(plan, budget).value();
    const Buffer logits = budget.allocate(MemoryClass::kLogits, 256, backend->memory()).value();
    std::vector<float> values(64, 1.0F);
    values[17] = 2.0F;
    upload(backend->memory(), std::span<const float>(values), logits.device<float>());
    Sampler sampler = Sampler::create(64, budget).value();
    sampler.set_options({}, {});
    std::array<TokenId, 1> chosen = {-1};
    SequenceChoice choice{.logits = {logits.device<float>(), 1, 64},
                          .sampler = &sampler,
                          .most = 1,
                          .chosen = chosen};
    class NoCopies final : public HostCopies {
     public:
      HostRows download(Rows /*rows*/) override {
        ADD_FAILURE() << "the host chose";
        return {};
      }
    } copies;
    executor->choose({&choice, 1}, copies);
    EXPECT_EQ(choice.count, fails ? 0 : 1);
    EXPECT_EQ(chosen[0], fails ? -1 : 17);
    ASSERT_EQ(choice.status.has_value(), !fails);
    if (!fails) continue;
    EXPECT_THAT(choice.status.error().message(), StartsWith("cuda:0, kernel largest"));
  }
}

// Those of a pass are read without asking the card, until something else writes there.
TEST_F(CudaDriver, ListsCountForTheLogitsOfTheirPassAlone) {
  constexpr std::int64_t kVocab = 64;
  const auto backend = create_backend_on(create());
  MemoryBudget budget;
  const auto executor = backend->create_executor({}, budget).value();
  const Buffer buffer = budget.allocate(MemoryClass::kLogits, 256, backend->memory()).value();
  const Rows logits = {buffer.device<float>(), 1, kVocab};
  Sampler sampler = Sampler::create(kVocab, budget).value();
  sampler.set_options({}, {});
  // The likeliest token is `best`, the unlikeliest one the next.
  const auto put = [&](std::size_t best) {
    std::vector<float> values(kVocab, 1.0F);
    values[best] = 2.0F;
    values[best + 1] = -2.0F;
    upload(backend->memory(), std::span<const float>(values), logits.data);
  };
  const auto choose = [&] {
    class NoCopies final : public HostCopies {
     public:
      HostRows download(Rows /*rows*/) override { return {}; }
    } copies;
    std::array<TokenId, 1> chosen = {-1};
    SequenceChoice choice{.logits = logits, .sampler = &sampler, .most = 1, .chosen = chosen};
    executor->choose({&choice, 1}, copies);
    return chosen[0];
  };
  const std::array<TokenId, 1> ids = {5};
  const BatchBuilder batch = BatchBuilder::one(ids, 3, {}, 1);
  const auto run_pass = [&](std::size_t best) {
    executor->begin(batch.batch());
    put(best);
    EXPECT_TRUE(executor->end(std::array<ConstRows, 1>{logits}));
  };
  run_pass(17);
  const std::int64_t calls = record().calls;
  EXPECT_EQ(choose(), 17);
  EXPECT_EQ(record().calls, calls);
  put(30);
  EXPECT_EQ(choose(), 30);
  run_pass(40);
  executor->add(logits, logits, -1.0F, logits);
  EXPECT_EQ(choose(), 41);
}

TEST_F(CudaDriver, SaysWhatIsFreeWhereThereIsNoMoreMemory) {
  set("memory=1048576 fail_allocation=2");
  const auto driver = create();
  MemoryBudget budget;
  const auto allocate = [&](std::uint64_t bytes) {
    return budget.allocate(MemoryClass::kWeights, bytes, driver->memory());
  };
  const auto first = allocate(1000);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(allocate(1000).error().message(),
            "cuda:0 has no 1000 B for weights, 1023.0 KiB are free");
  EXPECT_EQ(allocate(2 << 20).error().message(),
            "cuda:0 has no 2.0 MiB for weights, 1023.0 KiB are free");
  EXPECT_TRUE(allocate(1000).has_value()) << "the card still works";
  EXPECT_EQ(budget.device_footprint().total_reserved(), record().bytes);
}

}  // namespace
}  // namespace kakeya::cuda
