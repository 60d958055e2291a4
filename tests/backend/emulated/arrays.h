// Memory for kernels of tests.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/emulated/block.h"

namespace kakeya::emulated {

// Arrays that device code may use.
class Arrays : public DeviceMemory {
 public:
  Bounds bounds_of(const void* address) const override {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    for (const std::vector<float>* array : {&in, &out}) {
      const auto begin = reinterpret_cast<std::uintptr_t>(array->data());
      const std::uintptr_t end = begin + array->size() * sizeof(float);
      if (at >= begin && at < end) return {begin, end};
    }
    return {};
  }

  std::vector<float> in;
  std::vector<float> out;
};

}  // namespace kakeya::emulated
