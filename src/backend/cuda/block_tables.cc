#include "backend/cuda/block_tables.h"

#include <algorithm>
#include <utility>

#include "base/memory_budget.h"
#include "base/status.h"

namespace kakeya::cuda {

std::int64_t BlockTables::add(const DevicePointer<std::byte>* blocks, const KvRows& rows) {
  if (blocks == nullptr || rows.block_slots == 0) return kNone;
  const std::size_t at = tables_.size();
  const auto count =
      static_cast<std::size_t>((rows.capacity + rows.block_slots - 1) / rows.block_slots);
  tables_.resize(at + count);
  for (std::size_t block = 0; block < count; ++block) {
    tables_[at + block] = reinterpret_cast<std::uintptr_t>(blocks[block].address());
  }
  return static_cast<std::int64_t>(at);
}

bool BlockTables::find() {
  if (tables_.empty()) return true;
  for (std::size_t i = 0; i < kKept; ++i) {
    if (kept_[i].size != tables_.size()) continue;
    if (!std::equal(tables_.begin(), tables_.end(), pinned(i))) continue;
    kept_[i].last_used = ++uses_;
    used_ = i;
    return true;
  }
  return false;
}

// Tables of the same size take the place of those before them, of the same sequences or of others:
// kernels of the next pass are handed what they were. A copy costs less than other launches.
std::size_t BlockTables::choose_place() const {
  const auto alike = std::ranges::find(kept_, tables_.size(), &Kept::size);
  if (alike != kept_.end()) return static_cast<std::size_t>(alike - kept_.begin());
  const auto oldest = std::ranges::min_element(kept_, {}, &Kept::last_used);
  return static_cast<std::size_t>(oldest - kept_.begin());
}

Status BlockTables::grow() {
  const std::size_t capacity = 2 * tables_.size();
  const std::size_t bytes = kKept * capacity * sizeof(std::uint64_t);
  KAKEYA_ASSIGN_OR_RETURN(auto pinned, driver_.pin(bytes));
  KAKEYA_ASSIGN_OR_RETURN(Buffer device,
                          budget_.allocate(MemoryClass::kActivations, bytes, driver_.memory()));
  kept_ = {};
  capacity_ = capacity;
  pinned_ = std::move(pinned);
  device_ = std::move(device);
  return {};
}

Status BlockTables::upload(std::uint64_t waits) {
  if (tables_.size() > capacity_) KAKEYA_TRY(grow());
  used_ = choose_place();
  Kept& kept = kept_[used_];
  // Its last copy may still be under way.
  if (kept.size > 0 && kept.begun == waits) KAKEYA_TRY(driver_.synchronize());
  kept = {.size = tables_.size(), .last_used = ++uses_, .begun = waits};
  std::copy(tables_.begin(), tables_.end(), pinned(used_));
  const std::span from(pinned(used_), tables_.size());
  driver_.begin_upload(std::as_bytes(from),
                       DevicePointer<std::byte>(device_.data()) +
                           static_cast<std::int64_t>(used_ * capacity_ * sizeof(std::uint64_t)));
  return {};
}

}  // namespace kakeya::cuda
