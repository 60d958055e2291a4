// The address of memory that belongs to a backend. It behaves like a pointer with which host code
// can do arithmetic, but which it cannot read through: that goes through a MemorySpace.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace kakeya {

// Where a T lies, and those behind it; or nothing. A backend whose memory has no addresses of its
// own gives out a range that it has reserved, and looks up what an address stands for.
template <typename T>
class DevicePointer {
 public:
  DevicePointer() = default;
  DevicePointer(std::nullptr_t) {}
  explicit DevicePointer(T* address) : address_(address) {}
  // Converts a pointer to one to const.
  template <typename U>
  requires(std::is_same_v<const U, T>) DevicePointer(DevicePointer<U> other)
      : address_(other.address()) {}

  explicit operator bool() const { return address_ != nullptr; }
  bool operator==(const DevicePointer&) const = default;
  DevicePointer operator+(std::int64_t count) const { return DevicePointer(address_ + count); }

  // For the backend whose memory it is, and for whoever compares addresses. Nobody else may read
  // or write there.
  T* address() const { return address_; }

  // This address as a pointer to U.
  template <typename U>
  DevicePointer<U> as() const {
    return DevicePointer<U>(reinterpret_cast<U*>(address_));
  }

 private:
  T* address_ = nullptr;
};

}  // namespace kakeya
