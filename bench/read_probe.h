// The bandwidth of the memory where a backend computes, measured now: what stands beside a figure,
// since that is what a shared machine changes.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "base/thread_pool.h"

namespace kakeya::bench {

class ReadProbe {
 public:
  // `backend` must outlive it.
  explicit ReadProbe(Backend& backend);

  // Measures GB/s (1e9 bytes): what the backend's threads read together; of a device with memory of
  // its own what copies within it read and write together. 0 if there is no memory to measure with.
  double measure();

 private:
  double measure_copies();

  MemorySpace& memory_;
  std::unique_ptr<ThreadPool> pool_;  // null: the memory is a device's
};

}  // namespace kakeya::bench
