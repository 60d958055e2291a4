#include "eval/drafter/parity_totals.h"

#include <algorithm>

namespace kakeya::eval {

std::int64_t ParityBlock::equal() const {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < std::min(reference.size(), drafted.size()); ++i) {
    if (reference[i] == drafted[i]) ++count;
  }
  return count;
}

double ParityTotals::agreement() const {
  return tokens == 0 ? 0.0 : static_cast<double>(equal) / static_cast<double>(tokens);
}

ParityTotals parity_totals(std::span<const ParityBlock> blocks) {
  ParityTotals totals{.blocks = std::ssize(blocks)};
  for (const ParityBlock& block : blocks) {
    totals.tokens += std::ssize(block.reference);
    totals.equal += block.equal();
    totals.largest_difference = std::max(totals.largest_difference, block.difference);
  }
  return totals;
}

}  // namespace kakeya::eval
