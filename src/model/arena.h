// One block of a backend's memory cut into named pieces. The same function lays out the pieces
// twice: over a measuring arena to learn the size, then over the allocated block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/backend.h"
#include "base/memory_budget.h"

namespace kakeya {

class Arena {
 public:
  Arena() = default;  // measures
  explicit Arena(DevicePointer<std::byte> base) : base_(base) {}

  // The next piece, aligned for vectors; a null pointer while measuring.
  template <typename T>
  DevicePointer<T> take(std::int64_t count) {
    const std::uint64_t offset = used_;
    used_ += MemoryBudget::charged_bytes(static_cast<std::uint64_t>(count) * sizeof(T));
    if (!base_) return nullptr;
    return (base_ + static_cast<std::int64_t>(offset)).template as<T>();
  }
  Rows rows(std::int64_t count, std::int64_t width) {
    return {take<float>(count * width), count, width};
  }

  std::uint64_t used() const { return used_; }

 private:
  DevicePointer<std::byte> base_;
  std::uint64_t used_ = 0;
};

}  // namespace kakeya
