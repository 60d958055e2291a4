#include "base/memory_space.h"

#include <cstdlib>
#include <cstring>

#include "base/system_names.h"

namespace kakeya {
namespace {

// Pieces from this size on are aligned to huge pages and asked to be backed by them: streaming
// weights through 4 KiB pages costs page walks.
constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20;

class HostSpace final : public MemorySpace {
 public:
  std::string_view name() const override { return "host"; }
  bool is_host() const override { return true; }

  std::byte* allocate(std::uint64_t bytes) override {
    const bool huge = bytes >= 4 * kHugePage;
    const std::uint64_t alignment = huge ? kHugePage : kAlignment;
    void* data = nullptr;
    if (::posix_memalign(&data, alignment, bytes) != 0) return nullptr;
    if (huge) advise_huge_pages(data, bytes);
    return static_cast<std::byte*>(data);
  }
  void release(std::byte* memory, std::uint64_t /*bytes*/) override { std::free(memory); }

  void upload(std::span<const std::byte> from, DevicePointer<std::byte> to) override {
    if (!from.empty()) std::memcpy(to.address(), from.data(), from.size());
  }
  void download(DevicePointer<const std::byte> from, std::span<std::byte> to) override {
    if (!to.empty()) std::memcpy(to.data(), from.address(), to.size());
  }
  void copy(DevicePointer<const std::byte> from,
            DevicePointer<std::byte> to,
            std::uint64_t bytes) override {
    if (bytes > 0) std::memmove(to.address(), from.address(), bytes);
  }
  void fill(DevicePointer<std::byte> to, std::byte value, std::uint64_t bytes) override {
    if (bytes > 0) std::memset(to.address(), static_cast<int>(value), bytes);
  }
};

}  // namespace

MemorySpace& MemorySpace::host() {
  static HostSpace space;
  return space;
}

}  // namespace kakeya
