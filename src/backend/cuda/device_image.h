// The kernels as they were compiled for cards, within this library.
#pragma once

#include <cstddef>
#include <span>

namespace kakeya::cuda {

struct DeviceImage {
  std::span<const std::byte> bytes;  // as the driver loads it; empty: the build had no nvcc
  int least_driver = 0;              // the version of CUDA that a driver must know, as 13000
};

DeviceImage device_image();

}  // namespace kakeya::cuda
