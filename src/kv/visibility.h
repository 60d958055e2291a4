// Which of a layer's stored rows a query sees: its window, the sink and what is kept.
#pragma once

#include "kakeya/types.h"
#include "kv/kv_rows.h"

namespace kakeya {

// Keys that a query sees: [sink_begin, sink_end), maybe empty, and [begin, end); and, if rows are
// restored or coded, [sink_end, begin) between them.
struct SeenKeys {
  Position sink_begin = 0;
  Position sink_end = 0;
  Position begin = 0;
  Position end = 0;
};

// The keys that the query at `position` sees, and besides those of positions before `block_end`
// that follow it; 0: causal.
SeenKeys seen_keys(const KvLayer& layer, Position position, Position block_end);

}  // namespace kakeya
