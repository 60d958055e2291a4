// Which memory a launch reads and writes: what may change places with what.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/driver.h"

namespace kakeya::cuda {

struct Access {
  std::uintptr_t begin;
  std::uintptr_t end;
  bool writes;

  bool overlaps(const Access& other) const { return begin < other.end && other.begin < end; }
};

// The memory that changes and that launches touch; weights never do. Of rows of a cache it is the
// table of their blocks that counts.
class LaunchAccesses {
 public:
  // A launch of a list.
  LaunchAccesses(const LaunchList& launches, std::size_t i);

  // False if it may touch everything.
  bool is_known() const { return is_known_; }
  std::span<const Access> all() const { return all_; }
  // True if one of the two may write what the other one touches.
  bool conflicts_with(const LaunchAccesses& other) const;
  void add(const LaunchAccesses& other);

 private:
  bool is_known_ = true;
  std::vector<Access> all_;
};

// True if the parameters of a launch may change while it touches what it did: attention has more
// blocks as its rows see more, inputs lie elsewhere in the host's memory, and nobody knows of
// others anyway.
bool may_change_alone(const LaunchList& launches, std::size_t i);
// True if launch i of both lists, which are of the same kernel and may change alone, touches the
// same memory.
bool have_equal_accesses(const LaunchList& a, const LaunchList& b, std::size_t i);

}  // namespace kakeya::cuda
