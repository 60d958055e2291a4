#include "backend/emulated/guarded_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/status.h"

namespace kakeya::guarded {
namespace {

// Addresses only: pages are there when they are written to.
constexpr std::uint64_t kAddresses = std::uint64_t{32} << 30;
// Large pages, where the system has them: to open and close all memory for each operation, small
// ones of a model's weights took up to half of the time of tests.
constexpr std::uint64_t kGuardPage = std::uint64_t{2} << 20;

std::uint64_t whole_pages(std::uint64_t bytes) {
  return (bytes + kGuardPage - 1) / kGuardPage * kGuardPage;
}

}  // namespace

Result<std::unique_ptr<GuardedSpace>> GuardedSpace::create() {
  // More by a page, from whose first boundary on the space lies.
  void* mapped = ::mmap(nullptr, kAddresses + kGuardPage, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    return error(StatusCode::kResourceExhausted,
                 "the guarded backend needs {} bytes of addresses, which the system refuses",
                 kAddresses + kGuardPage);
  }
#ifdef MADV_HUGEPAGE
  // A system that refuses takes small ones.
  static_cast<void>(::madvise(mapped, kAddresses + kGuardPage, MADV_HUGEPAGE));
#endif
  return std::unique_ptr<GuardedSpace>(new GuardedSpace(static_cast<std::byte*>(mapped)));
}

GuardedSpace::GuardedSpace(std::byte* mapped)
    : mapped_(mapped),
      base_(mapped + (whole_pages(reinterpret_cast<std::uintptr_t>(mapped)) -
                      reinterpret_cast<std::uintptr_t>(mapped))) {}

GuardedSpace::~GuardedSpace() {
  ::munmap(mapped_, kAddresses + kGuardPage);
}

std::byte* GuardedSpace::allocate(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  // The first gap that is large enough, else behind everything.
  std::uint64_t place = 0;
  for (const auto& [begin, size] : pieces_) {
    if (begin - place >= bytes) break;
    place = begin + size;
  }
  if (bytes > kAddresses - place) return nullptr;
  pieces_.emplace(place, bytes);
  used_ = std::max(used_, whole_pages(place + bytes));
  protect(base_ + place, bytes, opened_ > 0);
  return base_ + place;
}

void GuardedSpace::release(std::byte* memory, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto piece = pieces_.find(static_cast<std::uint64_t>(memory - base_));
  KAKEYA_CHECK(piece != pieces_.end() && piece->second == bytes);
  pieces_.erase(piece);
}

void GuardedSpace::upload(std::span<const std::byte> from, DevicePointer<std::byte> to) {
  if (from.empty()) return;
  KAKEYA_CHECK(holds(to.address(), from.size()) && !holds(from.data(), 1));
  const std::lock_guard lock(mutex_);
  const Pages pages(*this, to.address(), from.size());
  std::memcpy(to.address(), from.data(), from.size());
}

void GuardedSpace::download(DevicePointer<const std::byte> from, std::span<std::byte> to) {
  if (to.empty()) return;
  KAKEYA_CHECK(holds(from.address(), to.size()) && !holds(to.data(), 1));
  const std::lock_guard lock(mutex_);
  const Pages pages(*this, from.address(), to.size());
  std::memcpy(to.data(), from.address(), to.size());
}

void GuardedSpace::copy(DevicePointer<const std::byte> from,
                        DevicePointer<std::byte> to,
                        std::uint64_t bytes) {
  if (bytes == 0) return;
  KAKEYA_CHECK(holds(from.address(), bytes) && holds(to.address(), bytes));
  const std::lock_guard lock(mutex_);
  const Pages read(*this, from.address(), bytes);
  const Pages written(*this, to.address(), bytes);
  std::memmove(to.address(), from.address(), bytes);
}

void GuardedSpace::fill(DevicePointer<std::byte> to, std::byte value, std::uint64_t bytes) {
  if (bytes == 0) return;
  KAKEYA_CHECK(holds(to.address(), bytes));
  const std::lock_guard lock(mutex_);
  const Pages pages(*this, to.address(), bytes);
  std::memset(to.address(), static_cast<int>(value), bytes);
}

bool GuardedSpace::has_address(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  return at >= base_ && at < base_ + kAddresses;
}

std::span<const std::byte> GuardedSpace::piece_of(const void* address) const {
  if (!has_address(address)) return {};
  const auto place = static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - base_);
  const std::lock_guard lock(mutex_);
  const auto behind = pieces_.upper_bound(place);
  if (behind == pieces_.begin()) return {};
  const auto& [begin, size] = *std::prev(behind);
  if (place >= begin + size) return {};
  return {base_ + begin, size};
}

bool GuardedSpace::holds(const void* memory, std::uint64_t bytes) const {
  const std::span<const std::byte> piece = piece_of(memory);
  const auto* const address = static_cast<const std::byte*>(memory);
  return !piece.empty() && address + bytes <= piece.data() + piece.size();
}

void GuardedSpace::open() {
  const std::lock_guard lock(mutex_);
  if (opened_++ == 0) protect(base_, used_, true);
}

void GuardedSpace::close() {
  const std::lock_guard lock(mutex_);
  if (--opened_ == 0) protect(base_, used_, false);
}

void GuardedSpace::protect(const void* memory, std::uint64_t bytes, bool accessible) {
  if (bytes == 0) return;
  const auto place = static_cast<std::uint64_t>(static_cast<const std::byte*>(memory) - base_);
  const std::uint64_t begin = place / kGuardPage * kGuardPage;
  KAKEYA_CHECK(::mprotect(base_ + begin, whole_pages(place + bytes) - begin,
                          accessible ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
}

}  // namespace kakeya::guarded
