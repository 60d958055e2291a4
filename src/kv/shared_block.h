// Memory in blocks that several owners may share: allocated together, held one by one. A block that
// is shared is only read; whoever wants to write makes a copy first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/memory_budget.h"
#include "kakeya/status.h"

namespace kakeya {

// One owner's hold on a block, or nothing. Move-only. Blocks that were allocated together are given
// back to the budget together, when nobody holds any of them. Different holds, of the same block
// too, may be used from different threads.
class SharedBlock {
 public:
  // `count` blocks of `bytes` each, one behind the other, held by nobody else. Budget and space
  // must outlive them. Errors: kResourceExhausted.
  static Result<std::vector<SharedBlock>> allocate(MemoryBudget& budget,
                                                   MemorySpace& space,
                                                   MemoryClass memory_class,
                                                   std::uint64_t bytes,
                                                   std::int64_t count);

  SharedBlock() = default;
  SharedBlock(SharedBlock&& other) noexcept;
  SharedBlock& operator=(SharedBlock&& other) noexcept;
  ~SharedBlock();

  explicit operator bool() const { return group_ != nullptr; }
  DevicePointer<std::byte> data() const;  // null for nothing
  std::uint64_t size() const;             // bytes, 0 for nothing

  // Another hold on the same block.
  SharedBlock share() const;
  // True if there are other holds. If not, there will be none, for only this one could be shared,
  // and whatever other owners did with the block has happened.
  bool is_shared() const;

  // Block `index` of those that were allocated together with this one, if it exists and nobody
  // holds it; else nothing.
  SharedBlock claim(std::int64_t index) const;

  // Which blocks were allocated together, and what all of them are charged.
  const void* group() const { return group_; }
  std::uint64_t group_bytes() const;

 private:
  struct Group;
  SharedBlock(Group* group, std::int64_t index) : group_(group), index_(index) {}

  Group* group_ = nullptr;
  std::int64_t index_ = 0;
};

}  // namespace kakeya
