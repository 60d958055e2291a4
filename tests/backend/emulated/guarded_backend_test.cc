// The backend that stands for a device: its memory is nobody else's.
#include <gtest/gtest.h>

#include <vector>

#include "backend/backend.h"
#include "backend/emulated/guarded_space.h"
#include "backend/host_rows.h"

namespace kakeya::test {
namespace {

constexpr MemoryClass kClass = MemoryClass::kActivations;

class GuardedBackend : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    backend_ = create_backend({.name = "guarded", .threads = {}}).value();
  }
  MemorySpace& space() { return backend_->memory(); }
  Buffer allocate(std::size_t floats) {
    return budget_.allocate(kClass, floats * sizeof(float), space()).value();
  }

  std::unique_ptr<Backend> backend_;
  MemoryBudget budget_;
};

TEST_F(GuardedBackend, GivesBackWhatWasUploaded) {
  const Buffer buffer = allocate(300);
  const Buffer other = allocate(300);
  std::vector<float> values(300);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  upload(space(), std::span<const float>(values), buffer.device<float>());
  space().copy(buffer.device<std::byte>(), other.device<std::byte>(), 1200);
  // Overlapping, as taps that move to the front.
  space().copy((other.device<float>() + 100).as<std::byte>(), other.device<std::byte>(), 800);
  std::vector<float> got(300);
  download(space(), DevicePointer<const float>(other.device<float>()), std::span(got));
  for (std::size_t i = 0; i < 200; ++i) ASSERT_EQ(got[i], values[i + 100]);
  for (std::size_t i = 200; i < 300; ++i) ASSERT_EQ(got[i], values[i]);
  space().fill(other.device<std::byte>(), std::byte{0}, 1200);
  download(space(), DevicePointer<const float>(other.device<float>()), std::span(got));
  EXPECT_EQ(got, std::vector<float>(300));
}

TEST_F(GuardedBackend, PiecesDoNotOverlapAndPlacesAreUsedAgain) {
  std::vector<Buffer> buffers;
  for (std::size_t i = 1; i < 40; ++i) buffers.push_back(allocate(17 * i));
  const std::byte* const end = buffers.back().data() + buffers.back().size();
  for (std::size_t i = 0; i < buffers.size(); i += 2) buffers[i] = Buffer();
  for (std::size_t i = 0; i < buffers.size(); i += 2) buffers[i] = allocate(17 * (i + 1));
  for (const Buffer& a : buffers) {
    EXPECT_LE(a.data() + a.size(), end);
    for (const Buffer& b : buffers) {
      if (&a == &b) continue;
      EXPECT_TRUE(a.data() + a.size() <= b.data() || b.data() + b.size() <= a.data());
    }
  }
}

TEST_F(GuardedBackend, IsAFaultForTheHostToTouch) {
  const Buffer buffer = allocate(4);
  EXPECT_DEATH(*buffer.as<volatile float>() = 1.0F, "");
  EXPECT_DEATH(static_cast<void>(*buffer.as<volatile float>()), "");
}

// A transfer opens its own pages alone, here several, and closes them all.
TEST_F(GuardedBackend, IsAFaultBehindATransfer) {
  constexpr std::size_t kFloats = 5000;
  const Buffer from = allocate(kFloats);
  const Buffer to = allocate(kFloats);
  std::vector<float> values(kFloats, 1.0F);
  const auto expect_faults = [&] {
    for (const Buffer* buffer : {&from, &to}) {
      for (const std::size_t i : {std::size_t{0}, kFloats - 1}) {
        EXPECT_DEATH(static_cast<void>(buffer->as<volatile float>()[i]), "") << i;
      }
    }
  };
  upload(space(), std::span<const float>(values), from.device<float>());
  expect_faults();
  space().copy(from.device<std::byte>(), to.device<std::byte>(), kFloats * sizeof(float));
  expect_faults();
  download(space(), DevicePointer<const float>(to.device<float>()), std::span(values));
  expect_faults();
  space().fill(to.device<std::byte>(), std::byte{0}, kFloats * sizeof(float));
  expect_faults();
}

TEST_F(GuardedBackend, RefusesHostMemoryInOperations) {
  const Buffer buffer = allocate(8);
  std::vector<float> host(8);
  const auto executor = backend_->create_executor({}, budget_).value();
  const Rows rows{buffer.device<float>(), 2, 4};
  const Rows beyond{buffer.device<float>() + 16, 2, 4};
  const Rows hosts = device_rows({host.data(), 2, 4});
  EXPECT_DEATH(executor->add(rows, hosts, 1.0F, rows), "");
  EXPECT_DEATH(executor->add(rows, rows, 1.0F, hosts), "");
  EXPECT_DEATH(executor->softcap(beyond, 1.0F), "");
  EXPECT_DEATH(executor->add_vector(rows, {hosts.data, 4}), "");
  EXPECT_DEATH(executor->add_vector(rows, {rows.data, 3}), "");
  EXPECT_DEATH(upload(space(), std::span<const float>(host), hosts.data), "");
  space().fill(buffer.device<std::byte>(), std::byte{0}, 32);
  executor->add(rows, rows, 1.0F, rows);
}

TEST(DeviceMemory, IsBoundedAndNamedApartFromTheHosts) {
  const auto backend = create_backend({.name = "guarded", .threads = {}}).value();
  MemoryBudget budget(1000);
  budget.set_device_limit(640);
  const Buffer host = budget.allocate(kClass, 960).value();
  const Buffer device = budget.allocate(kClass, 512, backend->memory()).value();
  EXPECT_EQ(budget.footprint().total_reserved(), 960U + 512U);
  EXPECT_EQ(budget.device_footprint().total_reserved(), 512U);
  EXPECT_EQ(budget.free_host_bytes(), 40U);
  const auto refused = budget.allocate(kClass, 200, backend->memory());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message(),
            "guarded memory budget of 640 B is exceeded: 512 B in use, 200 B more wanted for "
            "activations");
}

TEST(Backends, SaysWhyOneCannotBeHad) {
  for (const BackendSupport& support : backends()) {
    const auto backend = create_backend({.name = std::string(support.name), .threads = {}});
    EXPECT_EQ(backend.has_value(), support.missing.empty()) << support.name;
    if (backend) continue;
    EXPECT_TRUE(backend.error().code() == StatusCode::kUnimplemented ||
                backend.error().code() == StatusCode::kFailedPrecondition);
    EXPECT_NE(backend.error().message().find(support.missing), std::string::npos);
  }
}

}  // namespace
}  // namespace kakeya::test
