// The emulator finds what blocks of a launch read of each other without being the last one, and
// counters that are not zero again: in 20 orders of blocks and threads.
#include "backend/emulated/launch_writes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/device/dev.h"
#include "backend/cuda/device/products.h"
#include "backend/emulated/emulator.h"
#include "base/status.h"

namespace kakeya::emulated {
namespace {

namespace dev = cuda::dev;
using testing::HasSubstr;

constexpr int kThreads = 64;
constexpr int kBlocks = 5;
constexpr std::uint64_t kSeeds = 20;

enum class Fault {
  kNone,
  kEverybodyJoins,    // without asking who is last
  kOneJoins,          // block 0, whether it is last or not
  kCopies,            // as kEverybodyJoins, by copies
  kWritesAfterwards,  // behind the counter
  kNotCounted,        // one block's part
  kCountedTwice,
  kTooFew,
  kTooMany,
  kNotZero  // at first
};

struct Parts {
  float* parts;  // [blocks, threads]
  float* out;    // [threads]
  std::uint32_t* counter;
  Fault fault;
};

bool is_to_join(const Parts& p) {
  if (p.fault == Fault::kNotCounted && dev::block_x() == 3) return false;
  if (p.fault == Fault::kCountedTwice && dev::block_x() == 3) {
    static_cast<void>(dev::last_of(p.counter, kBlocks));
  }
  const int count = kBlocks + (p.fault == Fault::kTooMany) - (p.fault == Fault::kTooFew);
  if (p.fault == Fault::kEverybodyJoins || p.fault == Fault::kCopies) return true;
  const bool is_last = dev::last_of(p.counter, static_cast<std::uint32_t>(count));
  return p.fault == Fault::kOneJoins ? dev::block_x() == 0 : is_last;
}

// Each block writes a part, the last one adds them up.
void add_parts(const void* raw) {
  const auto& p = *static_cast<const Parts*>(raw);
  const dev::Global<float> parts(p.parts);
  const std::int64_t own = dev::block_x() * kThreads + dev::thread();
  parts.store(own, static_cast<float>(own % 13));
  const bool joins = is_to_join(p);
  if (p.fault == Fault::kWritesAfterwards && !joins) parts.store(own, 3.0F);
  if (!joins) return;
  if (p.fault == Fault::kCopies) {
    const auto* const from = reinterpret_cast<const cuda::device::FourFloats*>(p.parts);
    for (int b = 0; b < kBlocks; ++b) {
      dev::begin_copy((b * kThreads + dev::thread()) * 4, from, (b * kThreads + dev::thread()) / 4,
                      dev::CopyPolicy(false));
    }
    dev::end_copies();
    dev::await_copies<0>();
    return;
  }
  float sum = 0.0F;
  for (int b = 0; b < kBlocks; ++b) sum += parts.load(b * kThreads + dev::thread());
  dev::Global<float>(p.out).store(dev::thread(), sum);
}

struct Memory final : DeviceMemory {
  std::vector<float> parts = std::vector<float>(kBlocks * kThreads);
  std::vector<float> out = std::vector<float>(kThreads);
  std::uint32_t counter = 0;

  Bounds bounds_of(const void* address) const override {
    const auto bounds = [](const void* data, std::size_t bytes) {
      const auto begin = reinterpret_cast<std::uintptr_t>(data);
      return Bounds{begin, begin + bytes};
    };
    for (const Bounds& each :
         {bounds(parts.data(), parts.size() * sizeof(float)),
          bounds(out.data(), out.size() * sizeof(float)), bounds(&counter, sizeof(counter))}) {
      const auto at = reinterpret_cast<std::uintptr_t>(address);
      if (at >= each.begin && at < each.end) return each;
    }
    return {};
  }
};

Status run(Memory& memory, Fault fault, std::uint64_t seed, int launches = 1) {
  Emulator emulator(memory, seed);
  const Parts p = {memory.parts.data(), memory.out.data(), &memory.counter, fault};
  memory.counter = fault == Fault::kNotZero ? 2 : 0;
  for (int i = 0; i < launches; ++i) {
    KAKEYA_TRY(
        emulator.run("add_parts", add_parts, {kBlocks, 1, kThreads, 4 * kBlocks * kThreads}, &p));
  }
  return {};
}

TEST(LaunchWrites, AreSeenByTheLastBlockInEveryOrder) {
  Memory first;
  ASSERT_TRUE(run(first, Fault::kNone, 1));
  EXPECT_NE(first.out, std::vector<float>(kThreads));
  for (std::uint64_t seed = 2; seed <= kSeeds; ++seed) {
    Memory memory;
    const Status status = run(memory, Fault::kNone, seed, 3);
    ASSERT_TRUE(status) << status.error().message();
    EXPECT_EQ(memory.out, first.out);
    EXPECT_EQ(memory.counter, 0U);
  }
}

// It depends on the order if block 0 is last; all else is found in each.
TEST(LaunchWrites, AreRefusedToOthersAndCountersMustBeZeroAgain) {
  const std::vector<std::pair<Fault, std::string>> faults = {
      {Fault::kEverybodyJoins, "of the launch has written"},
      {Fault::kOneJoins, "of the launch has written"},
      {Fault::kCopies, "of the launch has written"},
      {Fault::kWritesAfterwards, "of the launch has written"},
      {Fault::kNotCounted, "4 of 5 blocks came to a counter"},
      {Fault::kCountedTwice, "came"},
      {Fault::kTooFew, "where 4 of 4 blocks came"},
      {Fault::kTooMany, "5 of 6 blocks came to a counter"},
      {Fault::kNotZero, "comes to a counter that holds 2 of 5 where 0 of"}};
  for (const auto& [fault, message] : faults) {
    std::uint64_t found = 0;
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Memory memory;
      const Status status = run(memory, fault, seed);
      if (status) continue;
      ++found;
      EXPECT_THAT(status.error().message(), HasSubstr("kernel add_parts"));
      EXPECT_THAT(status.error().message(), HasSubstr(message));
    }
    if (fault == Fault::kOneJoins) {
      EXPECT_GT(found, kSeeds / 2);
    } else {
      EXPECT_EQ(found, kSeeds) << message;
    }
  }
}

}  // namespace
}  // namespace kakeya::emulated
