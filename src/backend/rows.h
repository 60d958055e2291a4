// Rows of numbers in a backend's memory, as operations take them, and what else they point to.
#pragma once

#include <cstdint>
#include <span>

#include "base/device_pointer.h"

namespace kakeya {

// [count, width] f32, row after row.
struct ConstRows {
  DevicePointer<const float> data;
  std::int64_t count = 0;
  std::int64_t width = 0;

  bool operator==(const ConstRows&) const = default;
};
struct Rows {
  DevicePointer<float> data;
  std::int64_t count = 0;
  std::int64_t width = 0;
  operator ConstRows() const { return {data, count, width}; }
};

// Rows in memory that host code may read and write.
struct HostRows {
  float* data = nullptr;
  std::int64_t count = 0;
  std::int64_t width = 0;

  std::span<float> row(std::int64_t index) const {
    return {data + index * width, static_cast<std::size_t>(width)};
  }
  std::span<float> all() const { return {data, static_cast<std::size_t>(count * width)}; }
};

// `count` rows from `first` on.
inline Rows rows_from(const Rows& rows, std::int64_t first, std::int64_t count) {
  return {rows.data + first * rows.width, count, rows.width};
}
inline ConstRows rows_from(const ConstRows& rows, std::int64_t first, std::int64_t count) {
  return {rows.data + first * rows.width, count, rows.width};
}
inline Rows first_rows(const Rows& rows, std::int64_t count) {
  return rows_from(rows, 0, count);
}
inline ConstRows last_rows(const ConstRows& rows, std::int64_t count) {
  return rows_from(rows, rows.count - count, count);
}

// Views the numbers as rows of `width`: [T, H * E] as [T * H, E].
inline Rows reshape(const Rows& rows, std::int64_t width) {
  return {rows.data, rows.count * rows.width / width, width};
}
inline ConstRows reshape(const ConstRows& rows, std::int64_t width) {
  return {rows.data, rows.count * rows.width / width, width};
}

// A constant vector of `size` numbers.
struct ConstVector {
  DevicePointer<const float> data;
  std::int64_t size = 0;
};

// cos and sin of position * frequency, [T, half] each, half = head_dim / 2.
struct RopeTable {
  DevicePointer<float> cos;
  DevicePointer<float> sin;
  std::int64_t half = 0;
};

// The experts chosen for each row, best first, and their weights: [T, top_k] each.
struct Routing {
  DevicePointer<std::int32_t> experts;
  DevicePointer<float> weights;
  std::int64_t top_k = 0;
};

}  // namespace kakeya
