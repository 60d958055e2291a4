// A card that the host plays, for tests and for whoever has none: the kernels, compiled for the
// host.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "backend/cuda/driver.h"
#include "backend/emulated/block.h"

namespace kakeya::cuda {

struct EmulatorOptions {
  std::uint64_t seed = 1;  // of the order in which threads and blocks run
  // Kernels may use the host's memory, which has no bounds then. For tests of operations.
  bool allows_host_memory = false;
  // Each launch of a pass runs at once, by itself: none are fused. For tests.
  bool runs_one_by_one = false;
  // Counts what kernels read of some memory; must outlive the driver. For tests.
  emulated::CountedReads* counted = nullptr;
};

// A device that the host plays: kernels compiled for the host, a fiber a thread.
// Errors: kResourceExhausted if the system does not give the addresses.
Result<std::unique_ptr<Driver>> create_emulated_driver(const EmulatorOptions& options);

// The CUDA backend on such a card. `threads` pack weights; 0: one for each CPU. Errors: as above.
Result<std::unique_ptr<Backend>> create_emulated_backend(const EmulatorOptions& options = {},
                                                         int threads = 0);

}  // namespace kakeya::cuda
