#include "kv/shared_block.h"

#include <atomic>
#include <utility>

#include "base/status.h"

namespace kakeya {

struct SharedBlock::Group {
  Group(Buffer memory, std::uint64_t bytes, std::int64_t count)
      : buffer(std::move(memory)),
        block_bytes(bytes),
        holds(static_cast<std::size_t>(count)),
        all_holds(0) {}

  void hold(std::int64_t index) {
    holds[static_cast<std::size_t>(index)].fetch_add(1, std::memory_order_relaxed);
    all_holds.fetch_add(1, std::memory_order_relaxed);
  }

  Buffer buffer;
  std::uint64_t block_bytes;
  std::vector<std::atomic<std::int64_t>> holds;  // of each block
  std::atomic<std::int64_t> all_holds;           // their sum
};

Result<std::vector<SharedBlock>> SharedBlock::allocate(MemoryBudget& budget,
                                                       MemorySpace& space,
                                                       MemoryClass memory_class,
                                                       std::uint64_t bytes,
                                                       std::int64_t count) {
  KAKEYA_ASSIGN_OR_RETURN(
      Buffer buffer,
      budget.allocate(memory_class, bytes * static_cast<std::uint64_t>(count), space));
  auto* group = new Group(std::move(buffer), bytes, count);
  std::vector<SharedBlock> blocks;
  blocks.reserve(static_cast<std::size_t>(count));
  for (std::int64_t index = 0; index < count; ++index) {
    group->hold(index);
    blocks.push_back(SharedBlock(group, index));
  }
  return blocks;
}

SharedBlock::SharedBlock(SharedBlock&& other) noexcept
    : group_(std::exchange(other.group_, nullptr)), index_(other.index_) {}

SharedBlock& SharedBlock::operator=(SharedBlock&& other) noexcept {
  std::swap(group_, other.group_);
  std::swap(index_, other.index_);
  return *this;
}

SharedBlock::~SharedBlock() {
  if (group_ == nullptr) return;
  // Released, so that whoever finds the block free, or the group, finds it as it was left.
  group_->holds[static_cast<std::size_t>(index_)].fetch_sub(1, std::memory_order_release);
  if (group_->all_holds.fetch_sub(1, std::memory_order_acq_rel) == 1) delete group_;
}

DevicePointer<std::byte> SharedBlock::data() const {
  if (group_ == nullptr) return nullptr;
  return group_->buffer.device<std::byte>() +
         static_cast<std::int64_t>(group_->block_bytes) * index_;
}

std::uint64_t SharedBlock::size() const {
  return group_ == nullptr ? 0 : group_->block_bytes;
}

SharedBlock SharedBlock::share() const {
  if (group_ == nullptr) return {};
  group_->hold(index_);
  return {group_, index_};
}

bool SharedBlock::is_shared() const {
  return group_ != nullptr &&
         group_->holds[static_cast<std::size_t>(index_)].load(std::memory_order_acquire) > 1;
}

SharedBlock SharedBlock::claim(std::int64_t index) const {
  if (group_ == nullptr || index < 0 || index >= std::ssize(group_->holds)) return {};
  std::int64_t nobody = 0;
  if (!group_->holds[static_cast<std::size_t>(index)].compare_exchange_strong(
          nobody, 1, std::memory_order_acquire, std::memory_order_relaxed)) {
    return {};
  }
  group_->all_holds.fetch_add(1, std::memory_order_relaxed);
  return {group_, index};
}

std::uint64_t SharedBlock::group_bytes() const {
  return group_ == nullptr ? 0 : group_->buffer.size();
}

}  // namespace kakeya
