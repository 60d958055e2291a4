// The emulator finds what a card would not forgive, and nothing else: each fault planted into a
// kernel is found for each of 20 orders of its threads, with its kernel and line, and the kernel
// without the fault gives the same bits in all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/dev.h"
#include "backend/cuda/device/products.h"
#include "backend/emulated/arrays.h"
#include "backend/emulated/emulated_driver.h"
#include "backend/emulated/emulated_tensor_core.h"
#include "backend/emulated/emulator.h"
#include "base/memory_budget.h"

namespace kakeya::cuda {
namespace {

using emulated::Arrays;
using testing::HasSubstr;

constexpr int kThreads = 128;
constexpr std::uint64_t kSeeds = 20;

enum class Fault {
  kNone,
  kNoBarrierBeforeReading,
  kNoBarrierBeforeWriting,
  kUnwrittenShared,
  kBeyondShared,
  kBeyondGlobal,
  kNullPointer,
  kMisaligned,
  kSkippedExchange,
  kOtherExchange,
  kThreadEndsEarly,
  kOtherBarrier
};

struct Parameters {
  const float* in;
  float* out;
  Fault fault;
};

// Each block reverses its numbers through shared memory, twice, and adds their sum by warps.
void reverse(const void* raw) {
  const auto& p = *static_cast<const Parameters*>(raw);
  const dev::Global<const float> in(p.fault == Fault::kNullPointer ? nullptr : p.in);
  const dev::Global<float> out(p.out);
  const dev::Shared<float> shared(0);
  const int own = dev::thread();
  const bool is_odd_one = own == 37;
  const std::int64_t at = dev::block_x() * kThreads + own;
  float value = in.load(at + (p.fault == Fault::kBeyondGlobal ? kThreads : 0));
  if (p.fault == Fault::kThreadEndsEarly && is_odd_one) return;
  if (p.fault != Fault::kUnwrittenShared || !is_odd_one) shared.store(own, value);
  if (p.fault == Fault::kBeyondShared && is_odd_one) shared.store(kThreads, value);
  if (p.fault == Fault::kOtherBarrier && is_odd_one) {
    dev::sync_block();
  } else if (p.fault != Fault::kNoBarrierBeforeReading) {
    dev::sync_block();
  }
  value = shared.load(kThreads - 1 - own);
  if (p.fault != Fault::kNoBarrierBeforeWriting) dev::sync_block();
  shared.store(own, value);
  dev::sync_block();
  float sum[1] = {shared.load(kThreads - 1 - own)};
  if (p.fault == Fault::kOtherExchange && is_odd_one) {
    sum[0] = dev::warp_max(sum[0]);
  } else if (p.fault != Fault::kSkippedExchange || !is_odd_one) {
    dev::warp_sums(sum);
  }
  if (p.fault == Fault::kMisaligned) {
    const auto* const odd = reinterpret_cast<const std::uint16_t*>(p.in) + 1;
    value += dev::Global<const float>(reinterpret_cast<const float*>(odd)).load(0);
  }
  out.store(at, value + sum[0]);
}

enum class CopyFault {
  kNone,
  kNotAwaited,
  kAwaitedTooFew,
  kNotClosed,
  kNoBarrierBehind,
  kFilledWhileRead,
  kWrittenMeanwhile,
  kMisaligned,
  kBeyondGlobal,
  kNeverAwaited
};

struct CopyParameters {
  const float* in;
  float* out;
  CopyFault fault;
};

struct alignas(16) Unit {
  float at[4];
};

constexpr int kCopies = 6;  // of each warp, of 16 bytes a lane
constexpr int kSlots = 2;
constexpr int kSlotWords = 4 * dev::kWarp;

// Each warp adds up kCopies times 128 numbers, which it copies ahead into a ring of two slots; a
// lane has others of them than it copied.
void add_copies(const void* raw) {
  const auto& p = *static_cast<const CopyParameters*>(raw);
  const auto* const in = reinterpret_cast<const Unit*>(p.in);
  const int ring = dev::warp() * kSlots * kSlotWords;
  const dev::CopyPolicy policy(true);
  const auto begin = [&](int copy) {
    if (copy < kCopies) {
      const bool is_beyond = p.fault == CopyFault::kBeyondGlobal && copy == kCopies - 1;
      const std::int64_t unit = (dev::warp() * kCopies + copy) * dev::kWarp + dev::lane();
      dev::begin_copy(ring + copy % kSlots * kSlotWords + 4 * dev::lane() +
                          (p.fault == CopyFault::kMisaligned ? 2 : 0),
                      in, is_beyond ? unit + 1000 : unit, policy);
    }
    if (p.fault != CopyFault::kNotClosed) dev::end_copies();
  };
  float sum = 0.0F;
  for (int copy = 0; copy < kSlots; ++copy) begin(copy);
  const int copies = p.fault == CopyFault::kNeverAwaited ? kCopies - kSlots : kCopies;
  for (int copy = 0; copy < copies; ++copy) {
    if (p.fault == CopyFault::kAwaitedTooFew) {
      dev::await_copies<kSlots>();
    } else if (p.fault != CopyFault::kNotAwaited) {
      dev::await_copies<kSlots - 1>();
    }
    if (p.fault != CopyFault::kNoBarrierBehind) dev::sync_warp();
    const dev::Shared<float> slot(ring + copy % kSlots * kSlotWords);
    if (p.fault == CopyFault::kWrittenMeanwhile) slot.store(kSlotWords + dev::lane(), 0.0F);
    const auto own = slot.load_as<Unit>(4 * (dev::kWarp - 1 - dev::lane()));
    for (const float value : own.at) sum += value;
    if (p.fault != CopyFault::kFilledWhileRead) dev::sync_warp();
    begin(copy + kSlots);
  }
  dev::Global<float>(p.out).store(dev::thread(), sum);
}

constexpr std::int64_t kBlocks = 3;

Status run(Fault fault, std::uint64_t seed, Arrays& arrays, std::uint32_t shared_words = kThreads) {
  arrays.in.resize(kBlocks * kThreads);
  arrays.out.assign(kBlocks * kThreads, 0.0F);
  for (std::size_t i = 0; i < arrays.in.size(); ++i) {
    arrays.in[i] = static_cast<float>(i % 97) * 0.1F;
  }
  emulated::Emulator emulator(arrays, seed);
  const Parameters parameters = {arrays.in.data(), arrays.out.data(), fault};
  return emulator.run("reverse", reverse, {kBlocks, 1, kThreads, shared_words}, &parameters);
}

struct PlantedFault {
  Fault fault;
  std::string message;
};

TEST(CudaEmulator, FindsPlantedFaultsInEveryOrder) {
  const std::vector<PlantedFault> faults = {
      {Fault::kNoBarrierBeforeReading, "shared memory"},
      {Fault::kNoBarrierBeforeWriting, "with no barrier since"},
      {Fault::kUnwrittenShared, "which nobody wrote"},
      {Fault::kBeyondShared, "writes word 128 of 128 in shared memory"},
      {Fault::kBeyondGlobal, "out of bounds"},
      {Fault::kNullPointer, "through a pointer to no memory of the device"},
      {Fault::kMisaligned, "not a multiple of 4"},
      {Fault::kSkippedExchange, "lanes of its warp"},
      {Fault::kOtherExchange, "they diverged"},
      {Fault::kThreadEndsEarly, "barrier"},
      {Fault::kOtherBarrier, "reaches the barrier"}};
  for (const PlantedFault& planted : faults) {
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Arrays arrays;
      const Status status = run(planted.fault, seed, arrays);
      ASSERT_FALSE(status) << planted.message << ", seed " << seed;
      EXPECT_EQ(status.error().code(), StatusCode::kInternal);
      EXPECT_THAT(status.error().message(), HasSubstr("kernel reverse, block ("));
      EXPECT_THAT(status.error().message(), HasSubstr(", thread "));
      EXPECT_THAT(status.error().message(), HasSubstr(planted.message));
      EXPECT_THAT(status.error().message(), HasSubstr("cuda_emulator_test.cc:"));
    }
  }
}

Status run_copies(CopyFault fault, std::uint64_t seed, Arrays& arrays) {
  arrays.in.resize(kCopies * 4 * kThreads);
  arrays.out.assign(kThreads, 0.0F);
  for (std::size_t i = 0; i < arrays.in.size(); ++i) arrays.in[i] = static_cast<float>(i % 97);
  emulated::Emulator emulator(arrays, seed);
  const CopyParameters parameters = {arrays.in.data(), arrays.out.data(), fault};
  return emulator.run("add_copies", add_copies, {1, 1, kThreads, kSlots * 4 * kThreads},
                      &parameters);
}

TEST(CudaEmulator, FindsPlantedFaultsOfCopiesInEveryOrder) {
  const std::vector<std::pair<CopyFault, std::string>> faults = {
      {CopyFault::kNotAwaited, "while a copy to it is under way"},
      {CopyFault::kAwaitedTooFew, "while a copy to it is under way"},
      {CopyFault::kNotClosed, "while a copy to it is under way"},
      {CopyFault::kNoBarrierBehind, "shared memory"},
      {CopyFault::kFilledWhileRead, "shared memory"},
      {CopyFault::kWrittenMeanwhile, "while a copy to it is under way"},
      {CopyFault::kMisaligned, "which is not a multiple of 4"},
      {CopyFault::kBeyondGlobal, "out of bounds"},
      {CopyFault::kNeverAwaited, "ends with copies to shared memory that it did not await"}};
  for (const auto& [fault, message] : faults) {
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Arrays arrays;
      const Status status = run_copies(fault, seed, arrays);
      ASSERT_FALSE(status) << message << ", seed " << seed;
      EXPECT_THAT(status.error().message(), HasSubstr("kernel add_copies, block ("));
      EXPECT_THAT(status.error().message(), HasSubstr(message));
    }
  }
}

TEST(CudaEmulator, CopiesGiveTheSameBitsInEveryOrder) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Arrays arrays;
    const Status status = run_copies(CopyFault::kNone, seed, arrays);
    ASSERT_TRUE(status) << status.error().message();
    for (int t = 0; t < kThreads; ++t) {
      float expected = 0.0F;
      for (int copy = 0; copy < kCopies; ++copy) {
        const int unit =
            (t / dev::kWarp * kCopies + copy) * dev::kWarp + dev::kWarp - 1 - t % dev::kWarp;
        for (int i = 0; i < 4; ++i) expected += arrays.in[static_cast<std::size_t>(4 * unit + i)];
      }
      ASSERT_EQ(arrays.out[static_cast<std::size_t>(t)], expected) << t;
    }
  }
}

TEST(CudaEmulator, GivesTheSameBitsInEveryOrder) {
  Arrays first;
  ASSERT_TRUE(run(Fault::kNone, 1, first));
  for (std::uint64_t seed = 2; seed <= kSeeds; ++seed) {
    Arrays other;
    const Status status = run(Fault::kNone, seed, other);
    ASSERT_TRUE(status) << status.error().message();
    EXPECT_EQ(other.out, first.out);
  }
}

TEST(CudaEmulator, RefusesLaunchesThatNoCardRuns) {
  Arrays arrays;
  // Cards of compute capability 8.6 and 8.9 have the least.
  const Status status = run(Fault::kNone, 1, arrays, (99U << 10) / 4 + 1);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message(),
            "kernel reverse: 101380 bytes of shared memory, at most 101376 are possible");
}

TEST(CudaEmulator, MemoryOfTheDeviceIsNobodyElses) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto backend = create_emulated_backend().value();
  MemoryBudget budget;
  const Buffer buffer =
      budget.allocate(MemoryClass::kActivations, 64 * sizeof(float), backend->memory()).value();
  EXPECT_DEATH(*buffer.as<volatile float>() = 1.0F, "");
  // Memory that nobody wrote holds no number.
  std::array<float, 1> got = {0.0F};
  download(backend->memory(), DevicePointer<const float>(buffer.device<float>()),
           std::span<float>(got));
  EXPECT_NE(got[0], got[0]);
}

struct alignas(16) Four {
  std::uint32_t at[4];
};
struct MatrixParameters {
  float* out;
  int shift;  // of the rows that lanes name
};

// Four matrices of numbers 0 to 255, loaded as they are and transposed: eight words a lane.
void load_numbers(const void* raw) {
  const auto& p = *static_cast<const MatrixParameters*>(raw);
  const dev::Shared<std::uint32_t> shared(0);
  const auto pair = [](std::uint32_t i) { return 2 * i | (2 * i + 1) << 16; };
  const auto first = static_cast<std::uint32_t>(4 * dev::lane());
  shared.store_as(4 * dev::lane(),
                  Four{{pair(first), pair(first + 1), pair(first + 2), pair(first + 3)}});
  dev::sync_warp();
  std::uint32_t words[2][4];
  dev::load_matrices(4 * dev::lane() + p.shift, words[0]);
  dev::load_matrices_turned(4 * dev::lane() + p.shift, words[1]);
  const dev::Global<float> out(p.out);
  for (int i = 0; i < 8; ++i) {
    out.store(8 * dev::lane() + i, std::bit_cast<float>(words[i / 4][i % 4]));
  }
}

TEST(CudaEmulator, LoadsMatricesAsFragments) {
  Arrays arrays;
  arrays.out.assign(8 * 32, 0.0F);
  emulated::Emulator emulator(arrays, 1);
  MatrixParameters parameters = {arrays.out.data(), 0};
  ASSERT_TRUE(emulator.run("load_numbers", load_numbers, {1, 1, 32, 128}, &parameters));
  const auto number = [](std::uint32_t matrix, std::uint32_t row, std::uint32_t column) {
    return 64 * matrix + 8 * row + column;
  };
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    const std::uint32_t fourth = lane / 4;
    const std::uint32_t pair = lane % 4 * 2;
    for (std::uint32_t i = 0; i < 4; ++i) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(arrays.out[8 * lane + i]),
                number(i, fourth, pair) | number(i, fourth, pair + 1) << 16);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(arrays.out[8 * lane + 4 + i]),
                number(i, pair, fourth) | number(i, pair + 1, fourth) << 16);
    }
  }
  for (const auto& [shift, message] : std::vector<std::pair<int, std::string>>{
           {2, "which is not a multiple of 4"}, {4, "of 128 in shared memory"}}) {
    parameters.shift = shift;
    const Status status = emulator.run("load_numbers", load_numbers, {1, 1, 32, 128}, &parameters);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message(), HasSubstr(message));
    EXPECT_THAT(status.error().message(), HasSubstr("cuda_emulator_test.cc:"));
  }
}

// By hand: what is cut, and where the exponent comes from.
TEST(TensorCore, AddsProductsAtTheLargestExponentAndCutsWhatIsBehindIt) {
  const auto bf16 = [](float x) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
  };
  const auto sum_of = [&](std::vector<std::pair<float, float>> products, float sum) {
    std::uint16_t a[emulated::kTensorDepth] = {};
    std::uint16_t b[emulated::kTensorDepth] = {};
    for (std::size_t i = 0; i < products.size(); ++i) {
      a[i] = bf16(products[i].first);
      b[i] = bf16(products[i].second);
    }
    return emulated::add_products(a, b, sum);
  };
  EXPECT_EQ(sum_of({{1.5F, 2.0F}, {-0.5F, 4.0F}}, 10.0F), 11.0F);
  EXPECT_EQ(sum_of({}, 0.0F), 0.0F);
  // 2^-25 stays beside 1 until the end, 2^-26 does not.
  EXPECT_EQ(sum_of({{0x1p-12F, 0x1p-13F}, {1.0F, 1.0F}, {0x1p-12F, 0x1p-13F}}, 0.0F), 1.0F);
  EXPECT_EQ(sum_of({{1.0F, 1.0F}, {0x1p-12F, 0x1p-13F}}, -1.0F), 0x1p-25F);
  EXPECT_EQ(sum_of({{1.0F, 1.0F}, {0x1p-13F, 0x1p-13F}}, -1.0F), 0.0F);
  // Towards zero: 1 + 2^-23 - 2^-25 is not rounded up.
  EXPECT_EQ(sum_of({{1.0F, 1.0F}, {-0x1p-12F, 0x1p-13F}}, 0x1p-23F), 1.0F);
  EXPECT_EQ(sum_of({{-1.0F, 1.0F}, {0x1p-12F, 0x1p-13F}}, -0x1p-23F), -1.0F);
  // A product of zero does not count, however large the other factor.
  EXPECT_EQ(sum_of({{0x1p60F, 0.0F}, {0x1p-12F, 0x1p-13F}}, 0x1p-30F), 0x1p-25F + 0x1p-30F);
  EXPECT_TRUE(std::isnan(sum_of({{std::numeric_limits<float>::infinity(), 0.0F}}, 1.0F)));
  EXPECT_EQ(sum_of({{std::numeric_limits<float>::infinity(), 1.0F}}, 1.0F),
            std::numeric_limits<float>::infinity());
}

// A fault of a kernel ends the pass in which it ran, and no other.
TEST(CudaEmulator, AFaultIsTheStatusOfThePass) {
  const auto backend = create_emulated_backend().value();
  MemoryBudget budget;
  const auto executor = backend->create_executor({}, budget).value();
  const Buffer buffer =
      budget.allocate(MemoryClass::kActivations, 64 * sizeof(float), backend->memory()).value();
  const Rows rows = {buffer.device<float>(), 1, 64};
  const Rows too_many = {buffer.device<float>(), 3, 64};
  executor->softcap(too_many, 1.0F);
  const Status status = executor->end({});
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), HasSubstr("kernel softcap, block (1, 0), thread "));
  executor->softcap(rows, 1.0F);
  EXPECT_TRUE(executor->end({}));
}

}  // namespace
}  // namespace kakeya::cuda
