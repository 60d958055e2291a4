// What a device does for the backend: memory, and kernels one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/cuda/device/kernel_list.h"
#include "backend/cuda/device/params.h"
#include "base/memory_space.h"
#include "kakeya/status.h"

namespace kakeya::cuda {

enum class Kernel : std::uint8_t {
#define KAKEYA_KERNEL(name, params) name,
  KAKEYA_CUDA_KERNELS(KAKEYA_KERNEL)
#undef KAKEYA_KERNEL
};

inline constexpr std::string_view kKernelNames[] = {
#define KAKEYA_KERNEL(name, params) #name,
    KAKEYA_CUDA_KERNELS(KAKEYA_KERNEL)
#undef KAKEYA_KERNEL
};

struct LaunchShape {
  std::int64_t blocks_x = 1;
  std::int64_t blocks_y = 1;
  int threads = 32;  // of a block, whole warps
  std::uint32_t shared_words = 0;
};

// Thread-safe.
class Driver {
 public:
  // What cards with compute capability 8.0 have, and later ones no less of.
  static constexpr std::int64_t kMostBlocksX = (std::int64_t{1} << 31) - 1;
  static constexpr std::int64_t kMostBlocksY = 65535;
  static constexpr int kMostThreads = 1024;

  virtual ~Driver() = default;
  // "cuda", "cuda-emulated": for reports.
  virtual std::string_view name() const = 0;
  virtual MemorySpace& memory() = 0;
  // Runs the kernel after all before it, and before copies that follow; `parameters` are of its
  // type and are copied. A launch without blocks does nothing. Errors: kInternal, with the kernel;
  // those of synchronize().
  virtual Status launch(Kernel kernel, const LaunchShape& shape, const void* parameters) = 0;
  // Waits for all launches. Errors: what a launch or a copy came to, kUnavailable if the device
  // does not work any more.
  virtual Status synchronize() = 0;
};

struct EmulatorOptions {
  std::uint64_t seed = 1;  // of the order in which threads and blocks run
  // Kernels may use the host's memory, which has no bounds then. For tests of operations.
  bool allows_host_memory = false;
};

// A device that the host plays: kernels compiled for the host, a fiber a thread.
// Errors: kResourceExhausted if the system does not give the addresses.
Result<std::unique_ptr<Driver>> create_emulated_driver(const EmulatorOptions& options);

}  // namespace kakeya::cuda
