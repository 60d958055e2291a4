// The ladder of things that a session gives up, in order, until it fits into the memory limit:
// exact things first (room for passes, drafting, the length of a context nobody asked for), then
// the precision of keys and values, then old rows. docs/memory.md has the table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kakeya/options.h"

namespace kakeya {

struct MemoryRung {
  SessionOptions session;
  // The differences from the options asked for, in words for a person; empty for the first rung.
  std::string says;
};

// The rungs from `asked` down. Options asked for explicitly stay: a context other than 0, a format
// other than kAuto, a window or an eviction (and no row of a context that was asked for is
// dropped); `max_rows` and `drafting` are upper bounds. Only 0 stands for a context of
// `default_context` tokens or, where that does not fit, fewer. `calibrated`: calibrated types of
// full layers come before other formats of 4 bits.
std::vector<MemoryRung> memory_ladder(const SessionOptions& asked,
                                      std::int64_t default_context,
                                      bool calibrated);

}  // namespace kakeya
