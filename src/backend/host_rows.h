// How backends whose memory is the host's read and write what operations point to. Nobody else may.
#pragma once

#include <cstdint>

#include "backend/batch.h"
#include "backend/rows.h"

namespace kakeya {

// Row `index` of x.
inline const float* host_row(const ConstRows& x, std::int64_t index) {
  return x.data.address() + index * x.width;
}
inline float* host_row(const Rows& x, std::int64_t index) {
  return x.data.address() + index * x.width;
}

// Host memory as operations of such a backend take it.
template <typename T>
DevicePointer<T> device(T* host) {
  return DevicePointer<T>(host);
}
inline ConstVector device_vector(std::span<const float> host) {
  return {device(host.data()), std::ssize(host)};
}
// Rows that lie where host memory says.
inline Rows device_rows(HostRows x) {
  return {DevicePointer<float>(x.data), x.count, x.width};
}

// The blocks of keys or of values of a layer; null for none. A DevicePointer is nothing but its
// address.
inline std::byte* const* host_blocks(const DevicePointer<std::byte>* blocks) {
  static_assert(sizeof(DevicePointer<std::byte>) == sizeof(std::byte*));
  return reinterpret_cast<std::byte* const*>(blocks);
}

}  // namespace kakeya
