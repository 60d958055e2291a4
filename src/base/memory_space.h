// Memory of one kind: the host's, or that of a device. Whoever owns none of it reads and writes it
// with upload(), download(), copy() and fill() only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/device_pointer.h"
#include "kakeya/status.h"

namespace kakeya {

// Thread-safe.
class MemorySpace {
 public:
  virtual ~MemorySpace() = default;

  // This machine's own memory.
  static MemorySpace& host();

  // "host", "cuda:0": for ledgers and errors.
  virtual std::string_view name() const = 0;
  // True if host code may read and write at its addresses.
  virtual bool is_host() const { return false; }
  // The bytes that may still be allocated, by whatever process; none if nobody knows.
  virtual std::optional<std::uint64_t> free_bytes() const { return std::nullopt; }
  // Errors: why nothing of it can be used any more.
  virtual Status status() const { return {}; }

  // `bytes` > 0 bytes, aligned to kAlignment and not initialised; null if there is no more.
  static constexpr std::size_t kAlignment = 64;  // a cache line, and a 512-bit vector
  virtual std::byte* allocate(std::uint64_t bytes) = 0;
  virtual void release(std::byte* memory, std::uint64_t bytes) = 0;

  // Copies from host memory to this memory; `to` has room for as many bytes.
  virtual void upload(std::span<const std::byte> from, DevicePointer<std::byte> to) = 0;
  virtual void download(DevicePointer<const std::byte> from, std::span<std::byte> to) = 0;
  // Copies within this memory; the two may overlap.
  virtual void copy(DevicePointer<const std::byte> from,
                    DevicePointer<std::byte> to,
                    std::uint64_t bytes) = 0;
  virtual void fill(DevicePointer<std::byte> to, std::byte value, std::uint64_t bytes) = 0;
};

template <typename T>
void upload(MemorySpace& space, std::span<const T> from, DevicePointer<T> to) {
  space.upload(std::as_bytes(from), to.template as<std::byte>());
}
template <typename T>
void download(MemorySpace& space, DevicePointer<const T> from, std::span<T> to) {
  space.download(from.template as<const std::byte>(), std::as_writable_bytes(to));
}

}  // namespace kakeya
