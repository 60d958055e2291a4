// Memory that nobody can touch, but while it is opened: it stands for that of a device, in tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/memory_space.h"
#include "kakeya/status.h"

namespace kakeya::guarded {

// Reading or writing at its addresses is a fault of the program that the system reports as such.
class GuardedSpace final : public MemorySpace {
 public:
  // Errors: kResourceExhausted if the system does not give the addresses.
  static Result<std::unique_ptr<GuardedSpace>> create();
  ~GuardedSpace() override;

  std::string_view name() const override { return "guarded"; }
  std::byte* allocate(std::uint64_t bytes) override;
  void release(std::byte* memory, std::uint64_t bytes) override;
  void upload(std::span<const std::byte> from, DevicePointer<std::byte> to) override;
  void download(DevicePointer<const std::byte> from, std::span<std::byte> to) override;
  void copy(DevicePointer<const std::byte> from,
            DevicePointer<std::byte> to,
            std::uint64_t bytes) override;
  void fill(DevicePointer<std::byte> to, std::byte value, std::uint64_t bytes) override;

  // True if all of these bytes were allocated here.
  bool holds(const void* memory, std::uint64_t bytes) const;

  // The allocation that `address` lies in; empty if there is none.
  std::span<const std::byte> piece_of(const void* address) const;
  // True if `address` is one of those that allocations get.
  bool has_address(const void* address) const;

  // Open as long as it, or another one, lives.
  class Access {
   public:
    explicit Access(GuardedSpace& space) : space_(space) { space_.open(); }
    ~Access() { space_.close(); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    GuardedSpace& space_;
  };

 private:
  explicit GuardedSpace(std::byte* mapped);
  void open();
  void close();
  // Makes the pages of these bytes accessible or not.
  void protect(const void* memory, std::uint64_t bytes, bool accessible);

  // The pages of some bytes are accessible as long as it lives, under the lock: to open all for
  // each transfer takes several times as long as the transfer.
  class Pages {
   public:
    Pages(GuardedSpace& space, const void* memory, std::uint64_t bytes)
        : space_(space), memory_(memory), bytes_(bytes) {
      if (space_.opened_ == 0) space_.protect(memory_, bytes_, true);
    }
    ~Pages() {
      if (space_.opened_ == 0) space_.protect(memory_, bytes_, false);
    }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

   private:
    GuardedSpace& space_;
    const void* const memory_;
    const std::uint64_t bytes_;
  };

  std::byte* const mapped_;
  std::byte* const base_;
  mutable std::mutex mutex_;                       // of what follows
  std::map<std::uint64_t, std::uint64_t> pieces_;  // what is allocated: place to bytes
  std::uint64_t used_ = 0;                         // behind the last place ever given out
  int opened_ = 0;
};

}  // namespace kakeya::guarded
