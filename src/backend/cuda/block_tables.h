// Tables of the blocks of caches, as the device has them. Those of a batch are one piece. The last
// few pieces of different sizes stay there: target and drafter take turns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/batch.h"
#include "backend/cuda/driver.h"
#include "base/memory_budget.h"
#include "kakeya/status.h"

namespace kakeya::cuda {

class BlockTables {
 public:
  static constexpr std::int64_t kNone = -1;

  // Both must outlive it.
  BlockTables(Driver& driver, MemoryBudget& budget) : driver_(driver), budget_(budget) {}

  // The tables of another batch follow.
  void clear() { tables_.clear(); }
  // Where the table of blocks begins in all of them; kNone if there are no blocks.
  std::int64_t add(const DevicePointer<std::byte>* blocks, const KvRows& rows);
  // True if the device has them all.
  bool find();
  // Begins to copy them. `waits`: how often the caller has waited for the driver so far; it waits
  // here if it must. Errors: those of allocations and of Driver::synchronize().
  Status upload(std::uint64_t waits);
  // Where they are on the device, after find() or upload().
  const std::uint64_t* data() const { return device_.as<std::uint64_t>() + used_ * capacity_; }

 private:
  static constexpr std::size_t kKept = 4;
  struct Kept {
    std::size_t size = 0;  // 0: nothing is there
    std::uint64_t last_used = 0;
    std::uint64_t begun = 0;  // the caller's waits before its copy began
  };

  std::uint64_t* pinned(std::size_t i) const {
    return reinterpret_cast<std::uint64_t*>(pinned_.get()) + i * capacity_;
  }
  std::size_t choose_place() const;
  Status grow();

  Driver& driver_;
  MemoryBudget& budget_;
  std::vector<std::uint64_t> tables_;  // of the batch
  std::array<Kept, kKept> kept_;
  std::size_t capacity_ = 0;           // of a piece
  std::shared_ptr<std::byte> pinned_;  // what the device has, or will have when its copy is done
  Buffer device_;
  std::size_t used_ = 0;
  std::uint64_t uses_ = 0;
};

}  // namespace kakeya::cuda
