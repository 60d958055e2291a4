// Which block of a launch has written what, and what another one may read of it: what was written
// before that block came to a counter of which the reader was the last one.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace kakeya::emulated {

// A block of a grid.
struct GridPlace {
  std::int64_t x = 0;
  std::int64_t y = 0;
};

class LaunchWrites {
 public:
  void begin_launch();
  void begin_block(GridPlace block);
  // The running block writes.
  void note(std::uintptr_t address, std::size_t bytes);
  // The block whose writes there are not seen by the running one; null: there is none.
  const GridPlace* hidden_writer(std::uintptr_t address, std::size_t bytes) const {
    if (address + bytes <= begin_ || address >= end_) return nullptr;
    return find_hidden(address, bytes);
  }

  // The running block comes to a counter that is for `count` blocks of the launch and held `value`.
  // The last one sees what the others wrote before they came. Returns what is wrong; empty:
  // nothing.
  std::string arrive(std::uintptr_t counter,
                     std::uint32_t count,
                     std::uint32_t value,
                     bool& is_last);
  // Returns what is wrong with the counters when all blocks have ended; empty: nothing.
  std::string end_launch() const;

 private:
  static constexpr std::uintptr_t kUnitBytes = 4;
  struct Write {
    std::uint32_t block;  // of blocks_
    std::uint64_t when;
  };
  struct Arrival {
    std::uint32_t block;
    std::uint64_t when;
  };
  struct Counter {
    std::uint32_t count = 0;
    std::vector<Arrival> arrivals;
  };

  const GridPlace* find_hidden(std::uintptr_t address, std::size_t bytes) const;

  static constexpr std::uint32_t kNotListed = UINT32_MAX;
  // The running block's number in blocks_, which has those that write or come to counters.
  std::uint32_t own();

  GridPlace running_;
  std::uint32_t own_ = kNotListed;
  std::vector<GridPlace> blocks_;
  std::unordered_map<std::uintptr_t, Write> written_;
  std::uintptr_t begin_ = UINTPTR_MAX;  // of what blocks before the running one wrote
  std::uintptr_t end_ = 0;
  std::uintptr_t own_begin_ = UINTPTR_MAX;
  std::uintptr_t own_end_ = 0;
  std::uint64_t clock_ = 0;
  std::unordered_map<std::uintptr_t, Counter> counters_;
  std::unordered_map<std::uint32_t, std::uint64_t> seen_;  // of other blocks, until when
};

}  // namespace kakeya::emulated
