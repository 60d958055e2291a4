// The empty stand-in for the kernels for cards in a build without nvcc.
#include "backend/cuda/device_image.h"

namespace kakeya::cuda {

DeviceImage device_image() {
  return {};
}

}  // namespace kakeya::cuda
