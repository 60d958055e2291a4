#include "kv/visibility.h"

#include <algorithm>

namespace kakeya {

SeenKeys seen_keys(const KvLayer& layer, Position position, Position block_end) {
  const Position first = layer.window == 0 ? 0 : std::max<Position>(0, position - layer.window + 1);
  const Position begin = layer.kept == 0 ? first : std::max(first, position - layer.kept + 1);
  return {.sink_begin = first,
          .sink_end = std::max(first, std::min(layer.rows.sink, begin)),
          .begin = begin,
          .end = std::max(position + 1, block_end)};
}

}  // namespace kakeya
