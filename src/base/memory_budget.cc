#include "base/memory_budget.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace kakeya {

std::string_view memory_class_name(MemoryClass memory_class) {
  switch (memory_class) {
    case MemoryClass::kWeights:
      return "weights";
    case MemoryClass::kKvSliding:
      return "kv_sliding";
    case MemoryClass::kKvFull:
      return "kv_full";
    case MemoryClass::kDrafter:
      return "drafter";
    case MemoryClass::kCodes:
      return "codes";
    case MemoryClass::kActivations:
      return "activations";
    case MemoryClass::kLogits:
      return "logits";
    case MemoryClass::kPromptCache:
      return "prompt_cache";
    case MemoryClass::kGrammars:
      return "grammars";
  }
  return "?";
}

std::uint64_t Footprint::total_reserved() const {
  return std::accumulate(reserved.begin(), reserved.end(), std::uint64_t{0});
}

Footprint& Footprint::operator+=(const Footprint& other) {
  for (std::size_t i = 0; i < kNumMemoryClasses; ++i) {
    reserved[i] += other.reserved[i];
    live[i] += other.live[i];
  }
  return *this;
}

std::string Footprint::to_string() const {
  std::string text;
  for (std::size_t i = 0; i < kNumMemoryClasses; ++i) {
    if (reserved[i] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : " + ",
                        memory_class_name(static_cast<MemoryClass>(i)), format_bytes(reserved[i]));
  }
  return fmt::format("{} = {}", text.empty() ? "nothing" : text, format_bytes(total_reserved()));
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024.0) {
    value /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::uint64_t MemoryBudget::charged_bytes(std::uint64_t bytes) {
  return (bytes + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
}

Result<Buffer> MemoryBudget::allocate(MemoryClass memory_class,
                                      std::uint64_t bytes,
                                      MemorySpace& space) {
  while (true) {
    std::uint64_t missing = 0;
    Result<Buffer> buffer = try_allocate(memory_class, bytes, space, missing);
    // Only host memory can be reclaimed.
    if (buffer || reclaimer_ == nullptr || !space.is_host()) return buffer;
    if (!reclaimer_->reclaim(missing)) return buffer;
  }
}

Result<Buffer> MemoryBudget::allocate_spare(MemoryClass memory_class, std::uint64_t bytes) {
  std::uint64_t unused = 0;
  return try_allocate(memory_class, bytes, MemorySpace::host(), unused);
}

Result<Buffer> MemoryBudget::charge_foreign(MemoryClass memory_class, std::uint64_t bytes) {
  while (true) {
    std::uint64_t missing = 0;
    Status charged = charge(memory_class, bytes, MemorySpace::host(), missing);
    if (charged) break;
    if (reclaimer_ == nullptr || !reclaimer_->reclaim(missing)) {
      return Unexpected(std::move(charged).error());
    }
  }
  Buffer buffer;
  buffer.budget_ = this;
  buffer.size_ = charged_bytes(bytes);
  buffer.memory_class_ = memory_class;
  buffer.owned_ = false;
  return buffer;
}

Result<Buffer> MemoryBudget::charge_mapped(MemoryClass memory_class,
                                           std::span<const std::byte> mapped) {
  Buffer buffer;
  if (mapped.empty()) return buffer;
  std::uint64_t unused = 0;
  KAKEYA_TRY(charge(memory_class, mapped.size(), MemorySpace::host(), unused));
  buffer.budget_ = this;
  buffer.data_ = const_cast<std::byte*>(mapped.data());
  buffer.size_ = charged_bytes(mapped.size());
  buffer.memory_class_ = memory_class;
  buffer.owned_ = false;
  return buffer;
}

Status MemoryBudget::charge(MemoryClass memory_class,
                            std::uint64_t bytes,
                            const MemorySpace& space,
                            std::uint64_t& missing) {
  const std::uint64_t charged = charged_bytes(bytes);
  const std::uint64_t limit = limit_of(space);
  const std::lock_guard lock(mutex_);
  const bool exchanges = exchanging_ == std::this_thread::get_id();
  std::uint64_t& kept = kept_of(space);
  const std::uint64_t used = footprint_of(space).total_reserved() + (exchanges ? 0 : kept);
  if (charged < bytes || charged > limit - used) {
    missing = charged < bytes ? kUnlimited : charged - (limit - used);
    return error(StatusCode::kResourceExhausted,
                 "{}memory budget of {} is exceeded: {} in use, {} more wanted for {}",
                 space.is_host() ? "" : fmt::format("{} ", space.name()), format_bytes(limit),
                 format_bytes(used), format_bytes(bytes), memory_class_name(memory_class));
  }
  footprint_of(space).reserved_bytes(memory_class) += charged;
  if (exchanges) kept -= std::min(kept, charged);
  return {};
}

Result<Buffer> MemoryBudget::try_allocate(MemoryClass memory_class,
                                          std::uint64_t bytes,
                                          MemorySpace& space,
                                          std::uint64_t& missing) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  KAKEYA_TRY(charge(memory_class, bytes, space, missing));
  const std::uint64_t charged = charged_bytes(bytes);
  buffer.data_ = space.allocate(charged);
  if (buffer.data_ == nullptr) {
    release(memory_class, charged, space);
    missing = charged;
    KAKEYA_TRY(space.status());
    const auto free = space.free_bytes();
    return error(StatusCode::kResourceExhausted, "{} has no {} for {}{}",
                 space.is_host() ? "the system" : space.name(), format_bytes(bytes),
                 memory_class_name(memory_class),
                 free ? fmt::format(", {} are free", format_bytes(*free)) : "");
  }
  buffer.budget_ = this;
  buffer.space_ = &space;
  buffer.size_ = charged;
  buffer.memory_class_ = memory_class;
  return buffer;
}

void MemoryBudget::release(MemoryClass memory_class,
                           std::uint64_t bytes,
                           const MemorySpace& space) {
  const std::lock_guard lock(mutex_);
  footprint_of(space).reserved_bytes(memory_class) -= bytes;
  if (exchanging_ == std::this_thread::get_id()) kept_of(space) += bytes;
}

MemoryBudget::Exchange::Exchange(MemoryBudget& budget) : budget_(budget) {
  const std::lock_guard lock(budget_.mutex_);
  KAKEYA_CHECK(budget_.exchanging_ == std::thread::id());
  budget_.exchanging_ = std::this_thread::get_id();
}

MemoryBudget::Exchange::~Exchange() {
  const std::lock_guard lock(budget_.mutex_);
  budget_.exchanging_ = {};
  budget_.kept_host_ = budget_.kept_device_ = 0;
}

std::uint64_t MemoryBudget::free_host_bytes() const {
  const std::lock_guard lock(mutex_);
  return limit_ - host_.total_reserved() - kept_host_;
}

Footprint MemoryBudget::footprint() const {
  const std::lock_guard lock(mutex_);
  Footprint all = host_;
  all += device_;
  all.live = all.reserved;
  return all;
}

Footprint MemoryBudget::device_footprint() const {
  const std::lock_guard lock(mutex_);
  Footprint copy = device_;
  copy.live = copy.reserved;
  return copy;
}

Footprint MemoryBudget::footprint_in(const MemorySpace& space) const {
  const std::lock_guard lock(mutex_);
  Footprint copy = space.is_host() ? host_ : device_;
  copy.live = copy.reserved;
  return copy;
}

Buffer::Buffer(Buffer&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)),
      space_(other.space_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      memory_class_(other.memory_class_),
      owned_(other.owned_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(budget_, other.budget_);
  std::swap(space_, other.space_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(memory_class_, other.memory_class_);
  std::swap(owned_, other.owned_);
  return *this;
}

Buffer::~Buffer() {
  if (budget_ == nullptr) return;
  if (owned_) space_->release(data_, size_);
  budget_->release(memory_class_, size_, *space_);
}

}  // namespace kakeya
