// Runs kernels on the host, block after block in a random order.
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/cuda/driver.h"
#include "backend/emulated/block.h"

namespace kakeya::emulated {

using KernelBody = void (*)(const void* parameters);

// A kernel of device/, compiled for the host: what each thread runs.
KernelBody kernel_body(cuda::Kernel kernel);

// One launch at a time.
class Emulator {
 public:
  // Shared memory of a block, at most: as much as every card has that the kernels are for. Compute
  // capability 8.6 and 8.9 have 99 KiB, 8.0 has 163, 9.0 has 227.
  static constexpr std::uint32_t kMostSharedBytes = 99U << 10;

  // Creates an emulator whose order of threads follows from `seed` alone.
  Emulator(const DeviceMemory& memory, std::uint64_t seed) : random_(seed), block_(memory) {}

  // As Block::count_reads().
  void count_reads(CountedReads* counted) { block_.count_reads(counted); }
  // Those that follow start when all before them have ended.
  void begin_list() { block_.begin_list(); }
  // Errors: kInternal "kernel NAME, block (X, Y), thread T: what happened".
  Status run(std::string_view name,
             KernelBody body,
             const cuda::LaunchShape& shape,
             const void* parameters);

 private:
  SequenceRng random_;
  Block block_;
};

}  // namespace kakeya::emulated
