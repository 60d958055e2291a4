#include "backend/mlx/mlx_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_set>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/status.h"

namespace kakeya::mlx {
namespace {

// Addresses only: pages are there when they are written to.
constexpr std::uint64_t kAddresses = std::uint64_t{1} << 40;
constexpr std::uint64_t kPage = 16384;  // of Apple's chips; a multiple of everybody else's

std::uint64_t whole_pages(std::uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

std::uintptr_t number(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

std::byte* pointer(std::uintptr_t address) {
  return reinterpret_cast<std::byte*>(address);
}

// The number of MLX's primitives that have to run for these arrays.
std::uint64_t count_primitives(const std::vector<mx::array>& wanted) {
  std::unordered_set<std::uintptr_t> seen;
  std::vector<mx::array> open = wanted;
  while (!open.empty()) {
    const mx::array next = open.back();
    open.pop_back();
    const bool to_do = next.has_primitive() && next.status() == mx::array::Status::unscheduled;
    if (!to_do || !seen.insert(next.id()).second) continue;
    open.insert(open.end(), next.inputs().begin(), next.inputs().end());
  }
  return seen.size();
}

}  // namespace

std::optional<std::uint64_t> device_number(mx::Device device, const std::string& name) {
  const auto& facts = mx::device_info(device);
  const auto found = facts.find(name);
  if (found == facts.end() || !std::holds_alternative<std::size_t>(found->second)) return {};
  return std::get<std::size_t>(found->second);
}

Result<std::unique_ptr<MlxSpace>> MlxSpace::create(mx::Device device,
                                                   RowOperationsKind operations) {
  void* base =
      ::mmap(nullptr, kAddresses, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return error(StatusCode::kResourceExhausted,
                 "the mlx backend needs {} bytes of addresses, which the system refuses",
                 kAddresses);
  }
  return std::unique_ptr<MlxSpace>(new MlxSpace(static_cast<std::byte*>(base), device, operations));
}

MlxSpace::MlxSpace(std::byte* base, mx::Device device, RowOperationsKind operations)
    : base_(base), stream_(mx::new_thread_unsafe_stream(device)), operations_(operations) {}

std::optional<std::uint64_t> MlxSpace::free_bytes() const {
  if (stream_.device != mx::Device::gpu) return std::nullopt;
  const auto most = device_number(stream_.device, "max_recommended_working_set_size");
  if (!most) return std::nullopt;
  return *most - std::min<std::uint64_t>(*most, mx::get_active_memory());
}

MlxSpace::~MlxSpace() {
  names_.clear();
  ::munmap(base_, kAddresses);
}

std::byte* MlxSpace::allocate(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > kAddresses) return nullptr;
  const std::uint64_t size = whole_pages(bytes);
  // The first gap that is large enough, else behind everything.
  std::uint64_t place = 0;
  for (const auto& [begin, held] : pieces_) {
    if (begin - place >= size) break;
    place = begin + held;
  }
  if (size > kAddresses - place) return nullptr;
  if (::mprotect(base_ + place, size, PROT_READ | PROT_WRITE) != 0) return nullptr;
  pieces_.emplace(place, size);
  return base_ + place;
}

void MlxSpace::release(std::byte* memory, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto piece = pieces_.find(static_cast<std::uint64_t>(memory - base_));
  KAKEYA_CHECK(piece != pieces_.end() && piece->second == whole_pages(bytes));
  const auto begin = first_behind(number(memory));
  names_.erase(begin, names_.lower_bound(number(memory) + piece->second));
  // New pages in their place, which are zero when they are used: on macOS, MADV_DONTNEED may leave
  // what was there.
  constexpr int kAnew = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  KAKEYA_CHECK(::mmap(memory, piece->second, PROT_NONE, kAnew, -1, 0) == memory);
  pieces_.erase(piece);
}

void MlxSpace::upload(std::span<const std::byte> from, DevicePointer<std::byte> to) {
  if (from.empty()) return;
  const std::lock_guard lock(mutex_);
  from_pages(to.address(), from.size());
  std::memcpy(to.address(), from.data(), from.size());
}

void MlxSpace::download(DevicePointer<const std::byte> from, std::span<std::byte> to) {
  if (to.empty()) return;
  const std::lock_guard lock(mutex_);
  const std::uintptr_t begin = number(from.address());
  const std::uintptr_t end = begin + to.size();
  std::uintptr_t at = begin;
  for (auto it = first_behind(begin); it != names_.end() && it->first < end; ++it) {
    if (it->first > at) std::memcpy(&to[at - begin], pointer(at), it->first - at);
    at = std::max(at, it->first);
    const std::uintptr_t behind = std::min<std::uintptr_t>(end, it->first + it->second.bytes);
    std::memcpy(&to[at - begin], bytes_of(it->second) + (at - it->first), behind - at);
    at = behind;
  }
  if (at < end) std::memcpy(&to[at - begin], pointer(at), end - at);
}

void MlxSpace::copy(DevicePointer<const std::byte> from,
                    DevicePointer<std::byte> to,
                    std::uint64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  const auto it = first_behind(number(from.address()));
  if (it != names_.end() && it->first <= number(from.address())) {
    if (const auto value = part(from.address(), bytes, it->second.value.dtype())) {
      write_kept(to.address(), *value);
      return;
    }
  }
  to_pages(from.address(), bytes);
  from_pages(to.address(), bytes);
  std::memmove(to.address(), from.address(), bytes);
}

void MlxSpace::fill(DevicePointer<std::byte> to, std::byte value, std::uint64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  from_pages(to.address(), bytes);
  std::memset(to.address(), static_cast<int>(value), bytes);
}

bool MlxSpace::is_own(const void* address) const {
  return address >= base_ && address < base_ + kAddresses;
}

MlxSpace::Names::iterator MlxSpace::first_behind(std::uintptr_t begin) {
  auto it = names_.upper_bound(begin);
  if (it != names_.begin()) {
    const auto before = std::prev(it);
    if (before->first + before->second.bytes > begin) it = before;
  }
  return it;
}

std::unique_ptr<mx::array> MlxSpace::part(const void* address,
                                          std::uint64_t bytes,
                                          mx::Dtype dtype) {
  const std::uintptr_t begin = number(address);
  const auto it = first_behind(begin);
  if (it == names_.end() || it->first > begin) return nullptr;
  const mx::array& value = it->second.value;
  const std::uint64_t offset = begin - it->first;
  const std::uint64_t item = value.itemsize();
  if (offset + bytes > it->second.bytes || value.dtype() != dtype || offset % item != 0 ||
      bytes % item != 0) {
    return nullptr;
  }
  if (bytes == it->second.bytes) return std::make_unique<mx::array>(value);
  const auto first = static_cast<int>(offset / item);
  return std::make_unique<mx::array>(mx::slice(mx::reshape(value, {-1}, stream_), mx::Shape{first},
                                               mx::Shape{first + static_cast<int>(bytes / item)},
                                               mx::Shape{1}, stream_));
}

mx::array MlxSpace::read(const void* address, const mx::Shape& shape, mx::Dtype dtype) {
  return mx::reshape(read_as_written(address, shape, dtype), shape, stream_);
}

mx::array MlxSpace::read_as_written(const void* address, mx::Shape shape, mx::Dtype dtype) {
  std::uint64_t bytes = mx::size_of(dtype);
  for (const int length : shape) bytes *= static_cast<std::uint64_t>(length);
  if (const auto named = part(address, bytes, dtype)) return *named;
  to_pages(address, bytes);
  mx::array value(mx::allocator::malloc(bytes), std::move(shape), dtype);
  std::memcpy(value.data<std::byte>(), address, bytes);
  if (is_own(address)) {
    from_pages(const_cast<void*>(address), bytes);
    names_.insert_or_assign(number(address), Named{bytes, value, true});
  }
  return value;
}

void MlxSpace::write(void* address, mx::array value) {
  const std::uint64_t bytes = value.nbytes();
  from_pages(address, bytes);
  Named named{bytes, std::move(value), false};
  if (is_own(address)) {
    names_.insert_or_assign(number(address), std::move(named));
  } else {
    std::memcpy(address, bytes_of(named), bytes);
  }
}

void MlxSpace::write_kept(void* address, const mx::array& value) {
  write(address, value);
  if (is_own(address)) kept_.push_back(number(address));
}

void MlxSpace::run_rows(std::span<const ConstRows> rows) {
  std::vector<mx::array> wanted;
  for (const ConstRows& each : rows) {
    const std::uintptr_t begin = number(each.data.address());
    const std::uintptr_t end =
        begin + static_cast<std::uint64_t>(each.count * each.width) * sizeof(float);
    for (auto it = first_behind(begin); it != names_.end() && it->first < end; ++it) {
      mx::array& value = it->second.value;
      if (value.is_available()) continue;
      value = mx::contiguous(value, false, stream_);
      wanted.push_back(value);
    }
  }
  if (!wanted.empty() || !kept_.empty()) run(std::move(wanted));
  // Arrays that a pass made on its way are nobody's any more.
  std::erase_if(names_, [](const auto& name) { return !name.second.value.is_available(); });
}

void MlxSpace::to_pages(const void* address, std::uint64_t bytes) {
  const std::uintptr_t end = number(address) + bytes;
  for (auto it = first_behind(number(address)); it != names_.end() && it->first < end; ++it) {
    if (it->second.in_pages) continue;
    std::memcpy(pointer(it->first), bytes_of(it->second), it->second.bytes);
    it->second.in_pages = true;
  }
}

void MlxSpace::from_pages(void* address, std::uint64_t bytes) {
  const std::uintptr_t begin = number(address);
  const std::uintptr_t end = begin + bytes;
  auto it = first_behind(begin);
  while (it != names_.end() && it->first < end) {
    const std::uintptr_t first = it->first;
    const std::uintptr_t last = first + it->second.bytes;
    // The parts that are not overwritten stay, and need not be run for that.
    const bool in_pages = it->second.in_pages;
    const auto before = first < begin && !in_pages ? cut(*it, first, begin) : nullptr;
    const auto behind = last > end && !in_pages ? cut(*it, end, last) : nullptr;
    const bool kept = std::ranges::find(kept_, first) != kept_.end();
    it = names_.erase(it);
    if (before) names_.insert_or_assign(first, Named{begin - first, *before, false});
    if (behind) {
      it = std::next(names_.insert_or_assign(end, Named{last - end, *behind, false}).first);
      if (kept) kept_.push_back(end);
    }
  }
}

std::unique_ptr<mx::array> MlxSpace::cut(Names::value_type& name,
                                         std::uintptr_t begin,
                                         std::uintptr_t end) {
  auto piece = part(pointer(begin), end - begin, name.second.value.dtype());
  if (piece == nullptr) to_pages(pointer(name.first), name.second.bytes);  // not of whole numbers
  return piece;
}

const std::byte* MlxSpace::bytes_of(Named& named) {
  mx::array& value = named.value;
  if (!value.is_available()) run({value});
  if (!value.flags().row_contiguous) {
    value = mx::contiguous(value, false, stream_);
    run({value});
  }
  return value.data<std::byte>();
}

void MlxSpace::run(std::vector<mx::array> wanted) {
  for (const std::uintptr_t address : std::exchange(kept_, {})) {
    if (const auto it = names_.find(address); it != names_.end()) {
      wanted.push_back(it->second.value);
    }
  }
  ++counters_.evaluations;
  counters_.primitives += count_primitives(wanted);
  mx::eval(std::move(wanted));
}

}  // namespace kakeya::mlx
