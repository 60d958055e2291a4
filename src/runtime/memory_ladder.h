// What a session gives up, and in which order, until it fits into the memory limit: exact things
// first (room for passes, drafting, the length of a context nobody asked for), then the precision
// of keys and values, then old rows. docs/memory.md has the table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kakeya/options.h"

namespace kakeya {

struct MemoryRung {
  SessionOptions session;
  // What differs from what was asked, in words for a person; empty for the first one.
  std::string says;
};

// From `asked` down. What was asked for explicitly stays: a context other than 0, a format other
// than kAuto, a window or an eviction (and no row of a context that was asked for is dropped);
// `max_rows` and `drafting` are upper bounds. Only 0 stands for a context of `default_context`
// tokens or, where that does not fit, fewer.
std::vector<MemoryRung> memory_ladder(const SessionOptions& asked, std::int64_t default_context);

}  // namespace kakeya
