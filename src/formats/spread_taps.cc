#include "formats/spread_taps.h"

#include "base/check.h"

namespace kakeya {

std::vector<std::int64_t> spread_taps(std::int64_t first, std::int64_t last, std::int64_t count) {
  KAKEYA_CHECK(count >= 2 && last - first >= count - 1);
  std::vector<std::int64_t> taps;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t steps = i * (last - first);
    const std::int64_t floor = first + steps / (count - 1);
    const std::int64_t twice_rest = 2 * (steps % (count - 1));
    const bool up = twice_rest > count - 1 || (twice_rest == count - 1 && floor % 2 != 0);
    taps.push_back(up ? floor + 1 : floor);
  }
  return taps;
}

bool has_default_taps(std::int64_t target_layers, std::int64_t count) {
  return count == 1 ? target_layers >= 1 : target_layers - 4 >= count - 1;
}

std::vector<std::int64_t> default_taps(std::int64_t target_layers, std::int64_t count) {
  KAKEYA_CHECK(has_default_taps(target_layers, count));
  if (count == 1) return {target_layers / 2};
  return spread_taps(1, target_layers - 3, count);
}

}  // namespace kakeya
