// The one door to large memory, of host and device: every buffer is charged to a budget before it
// is allocated and returned to it when freed, so that the ledger equals the allocator. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "base/memory_space.h"
#include "kakeya/memory.h"
#include "kakeya/status.h"

namespace kakeya {

class MemoryBudget;

// An aligned block of some MemorySpace, uninitialised. Move-only; gives its bytes back to the
// budget when destroyed. The budget and the space must outlive it.
class Buffer {
 public:
  static constexpr std::size_t kAlignment = MemorySpace::kAlignment;

  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  // The buffer's address, for host code if it is host memory, and for the backend whose memory it
  // is.
  std::byte* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  // The address for everybody else, who may not read or write there.
  template <typename T>
  DevicePointer<T> device() const {
    return DevicePointer<T>(as<T>());
  }
  MemorySpace& space() const { return *space_; }
  std::uint64_t size() const { return size_; }  // as charged: rounded up to the alignment

 private:
  friend class MemoryBudget;
  MemoryBudget* budget_ = nullptr;
  MemorySpace* space_ = &MemorySpace::host();
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  MemoryClass memory_class_ = MemoryClass::kWeights;
  bool owned_ = true;  // false: the memory is somebody else's
};

// Holds memory of a budget that it can do without.
class MemoryReclaimer {
 public:
  virtual ~MemoryReclaimer() = default;
  // Gives some of it back if that, with more such calls, may come to `missing` bytes; false, and
  // nothing is given back, if not. Called by the thread that allocates, which holds no lock of the
  // budget's; whoever implements it must not allocate with MemoryBudget::allocate() under a lock
  // that this takes.
  virtual bool reclaim(std::uint64_t missing) = 0;
};

class MemoryBudget {
 public:
  static constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

  // `limit_bytes`: of host memory, and of a device's if its limit is not set.
  explicit MemoryBudget(std::uint64_t limit_bytes = kUnlimited) : limit_(limit_bytes) {}

  // Bounds the memory of a device, which is not the host's, by a limit of its own. Before anything
  // of it is allocated; there is one device.
  void set_device_limit(std::uint64_t bytes) { device_limit_ = bytes; }

  // The bytes that a buffer of `bytes` is charged: rounded up to whole cache lines.
  static std::uint64_t charged_bytes(std::uint64_t bytes);

  // Errors: kResourceExhausted, with what is used, asked and allowed, if it would exceed the limit
  // or the system has no memory, and the reclaimer gives nothing more; nothing is charged then. 0
  // bytes gives an empty buffer.
  Result<Buffer> allocate(MemoryClass memory_class,
                          std::uint64_t bytes,
                          MemorySpace& space = MemorySpace::host());
  // Allocates host memory without asking the reclaimer.
  Result<Buffer> allocate_spare(MemoryClass memory_class, std::uint64_t bytes);

  // Charges memory of a mapped file as if it had been allocated: what is computed with has its
  // place in the ledger wherever it lies. The buffer is not to be written to; the memory must
  // outlive it. Errors: those of allocate().
  Result<Buffer> charge_mapped(MemoryClass memory_class, std::span<const std::byte> mapped);

  // Charges host memory that no buffer holds: that of a library. The buffer has no address. Errors:
  // those of allocate().
  Result<Buffer> charge_foreign(MemoryClass memory_class, std::uint64_t bytes);

  // While it lives, what its thread gives back is kept for what that thread allocates: memory is
  // replaced by other memory, without room for both and without anybody else taking the room
  // between. One at a time of a budget.
  class Exchange {
   public:
    explicit Exchange(MemoryBudget& budget);
    ~Exchange();
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

   private:
    MemoryBudget& budget_;
  };

  // Whom to ask before refusing, null for nobody; it must be there until another one is set. Not
  // while other threads allocate.
  void set_reclaimer(MemoryReclaimer* reclaimer) { reclaimer_ = reclaimer; }

  std::uint64_t limit() const { return limit_; }
  // The limit of the memory in `space`.
  std::uint64_t limit_of(const MemorySpace& space) const {
    return space.is_host() ? limit_ : device_limit_.value_or(limit_);
  }
  Footprint footprint_in(const MemorySpace& space) const;
  std::uint64_t free_host_bytes() const;
  // The footprint of all memory, and of the device's part of it: none where memory is the host's.
  Footprint footprint() const;
  Footprint device_footprint() const;

 private:
  friend class Buffer;
  // `missing`: if it is refused, the bytes that would have had to be free.
  Status charge(MemoryClass memory_class,
                std::uint64_t bytes,
                const MemorySpace& space,
                std::uint64_t& missing);
  void release(MemoryClass memory_class, std::uint64_t bytes, const MemorySpace& space);
  // `missing` as in charge().
  Result<Buffer> try_allocate(MemoryClass memory_class,
                              std::uint64_t bytes,
                              MemorySpace& space,
                              std::uint64_t& missing);
  Footprint& footprint_of(const MemorySpace& space) { return space.is_host() ? host_ : device_; }
  // Under mutex_: what is kept of that memory for an exchange.
  std::uint64_t& kept_of(const MemorySpace& space) {
    return space.is_host() ? kept_host_ : kept_device_;
  }

  const std::uint64_t limit_;
  std::optional<std::uint64_t> device_limit_;
  MemoryReclaimer* reclaimer_ = nullptr;
  mutable std::mutex mutex_;
  Footprint host_;
  Footprint device_;
  std::thread::id exchanging_;  // none: no exchange
  std::uint64_t kept_host_ = 0;
  std::uint64_t kept_device_ = 0;
};

// "1.5 GiB", "640 B".
std::string format_bytes(std::uint64_t bytes);

}  // namespace kakeya
