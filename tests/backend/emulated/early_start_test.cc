// The emulator holds kernels that start before those in front of them have ended to what they may
// do until then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/device/dev.h"
#include "backend/cuda/device/products.h"
#include "backend/emulated/arrays.h"
#include "backend/emulated/emulator.h"

namespace kakeya::emulated {
namespace {

namespace dev = cuda::dev;
using testing::HasSubstr;

constexpr int kBlockThreads = 128;

// A kernel that starts early and forgets something: 0 nothing, 1 to wait before it reads, 2 before
// it writes, 3 at all.
struct EarlyParameters {
  const float* in;
  float* out;
  int fault;
};
void copy_early(const void* parameters) {
  const auto& p = *static_cast<const EarlyParameters*>(parameters);
  dev::start_early();
  if (p.fault == 3) return;
  float value = 1.0F;
  if (p.fault == 1) value = dev::Global<const float>(p.in).load(dev::thread());
  if (p.fault != 2) dev::wait_for_previous();
  if (p.fault == 0) value = dev::Global<const float>(p.in).load(dev::thread());
  dev::Global<float>(p.out).store(dev::thread(), value);
  dev::wait_for_previous();
}

TEST(EarlyStart, HoldsKernelsThatStartEarlyToTheirWait) {
  const std::vector<std::string> messages = {"", "reads memory at ", "writes memory at ",
                                             "ends without having waited"};
  for (int fault = 0; fault < 4; ++fault) {
    Arrays arrays;
    arrays.in.assign(kBlockThreads, 2.0F);
    arrays.out.assign(kBlockThreads, 0.0F);
    Emulator emulator(arrays, 1);
    const EarlyParameters parameters = {arrays.in.data(), arrays.out.data(), fault};
    const Status status =
        emulator.run("copy_early", copy_early, {1, 1, kBlockThreads}, &parameters);
    ASSERT_EQ(status.has_value(), fault == 0) << fault;
    if (!status) {
      EXPECT_THAT(status.error().message(), HasSubstr(messages[static_cast<std::size_t>(fault)]));
    }
  }
}

// A kernel that copies what the launch before wrote, or reads it, and waits afterwards.
struct HastyParameters {
  const cuda::device::FourFloats* in;
  float* out;
  bool copies;
};
void read_early(const void* parameters) {
  const auto& p = *static_cast<const HastyParameters*>(parameters);
  dev::start_early();
  if (p.copies) {
    dev::begin_copy(4 * dev::thread(), p.in, dev::thread(), dev::CopyPolicy(false));
    dev::end_copies();
    dev::await_copies<0>();
  } else {
    static_cast<void>(dev::Global<const cuda::device::FourFloats>(p.in).load_fresh(dev::thread()));
  }
  dev::wait_for_previous();
}
void write_last(const void* parameters) {
  const auto& p = *static_cast<const HastyParameters*>(parameters);
  if (dev::thread() == 0) dev::Global<float>(p.out).store(4 * kBlockThreads - 1, 1.0F);
}

void let_early(const void* /*parameters*/) {
  dev::start_early();
  dev::let_next_start();
  dev::wait_for_previous();
}

TEST(EarlyStart, RefusesToReadEarlyWhatTheLaunchBeforeWrites) {
  for (const bool copies : {true, false}) {
    Arrays arrays;
    arrays.in.assign(4 * kBlockThreads, 2.0F);
    arrays.out.assign(4 * kBlockThreads, 0.0F);
    Emulator emulator(arrays, 1);
    const auto* const out = reinterpret_cast<const cuda::device::FourFloats*>(arrays.out.data());
    const HastyParameters parameters = {out, arrays.out.data(), copies};
    const cuda::LaunchShape shape = {1, 1, kBlockThreads, 4 * kBlockThreads};
    EXPECT_TRUE(emulator.run("read_early", read_early, shape, &parameters));
    EXPECT_TRUE(emulator.run("write_last", write_last, shape, &parameters));
    const Status status = emulator.run("read_early", read_early, shape, &parameters);
    ASSERT_FALSE(status) << copies;
    EXPECT_THAT(status.error().message(), HasSubstr("what the launch before has written"));
    // Reading what an earlier one wrote is fine, but behind one that lets others start too soon.
    EXPECT_TRUE(emulator.run("read_early", read_early, shape, &parameters));
    EXPECT_TRUE(emulator.run("write_last", write_last, shape, &parameters));
    EXPECT_TRUE(emulator.run("let_early", let_early, shape, &parameters));
    EXPECT_FALSE(emulator.run("read_early", read_early, shape, &parameters)) << copies;
  }
}

// A kernel that lets nobody start before it has ended, and what it has written is seen then, or
// not.
struct PublishingParameters {
  float* out;
  bool publishes;
  bool lets_start;
};
void write_and_publish(const void* parameters) {
  const auto& p = *static_cast<const PublishingParameters*>(parameters);
  dev::start_early();
  dev::wait_for_previous();
  if (p.lets_start) dev::let_next_start();
  dev::Global<float>(p.out).store(dev::thread(), 1.0F);
  if (p.publishes || dev::thread() != 5) dev::publish_writes();
}

TEST(EarlyStart, LetsReadEarlyWhatALaunchHasPublishedThatLetsNobodyStart) {
  for (const bool publishes : {true, false}) {
    for (const bool lets_start : {true, false}) {
      Arrays arrays;
      arrays.out.assign(4 * kBlockThreads, 0.0F);
      Emulator emulator(arrays, 1);
      const auto* const out = reinterpret_cast<const cuda::device::FourFloats*>(arrays.out.data());
      const PublishingParameters publishing = {arrays.out.data(), publishes, lets_start};
      const HastyParameters reading = {out, arrays.out.data(), false};
      const cuda::LaunchShape shape = {1, 1, kBlockThreads, 4 * kBlockThreads};
      // The launch before that says nothing of it.
      const PublishingParameters other = {arrays.out.data(), !publishes, !lets_start};
      EXPECT_TRUE(emulator.run("write_and_publish", write_and_publish, shape, &other));
      EXPECT_TRUE(emulator.run("write_and_publish", write_and_publish, shape, &publishing));
      EXPECT_EQ(emulator.run("read_early", read_early, shape, &reading).has_value(),
                publishes && !lets_start);
    }
  }
}

}  // namespace
}  // namespace kakeya::emulated
