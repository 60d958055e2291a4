// One block of memory cut into named pieces. The same function lays out the pieces twice: over a
// measuring arena to learn the size, then over the allocated block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/backend.h"
#include "base/memory_budget.h"

namespace kakeya {

class Arena {
 public:
  Arena() = default;  // measures
  explicit Arena(std::byte* base) : base_(base) {}

  // The next piece, aligned for vectors; a null pointer while measuring.
  template <typename T>
  T* take(std::int64_t count) {
    const std::uint64_t offset = used_;
    used_ += MemoryBudget::charged_bytes(static_cast<std::uint64_t>(count) * sizeof(T));
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + offset);
  }
  Rows rows(std::int64_t count, std::int64_t width) {
    return {take<float>(count * width), count, width};
  }

  std::uint64_t used() const { return used_; }

 private:
  std::byte* base_ = nullptr;
  std::uint64_t used_ = 0;
};

// The first `count` rows.
inline Rows first_rows(const Rows& rows, std::int64_t count) {
  return {rows.data, count, rows.width};
}

// The last `count` rows.
inline ConstRows last_rows(const ConstRows& rows, std::int64_t count) {
  return {rows.data + (rows.count - count) * rows.width, count, rows.width};
}

// The same numbers cut into rows of `width`: [T, H * E] seen as [T * H, E].
inline Rows reshape(const Rows& rows, std::int64_t width) {
  return {rows.data, rows.count * rows.width / width, width};
}

}  // namespace kakeya
