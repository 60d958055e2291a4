#include "held_back.h"

#include <cstddef>
#include <set>

namespace kakeya::train {
namespace {

constexpr std::size_t kHeldBackShare = 10;

}  // namespace

std::vector<Part> parts_of(std::span<const std::vector<TokenId>> prompts) {
  std::vector<Part> parts(prompts.size(), Part::kTraining);
  std::set<std::vector<TokenId>> held_back;
  const auto hold_back = [&](std::size_t index) {
    parts[index] = Part::kHeldBack;
    held_back.insert(prompts[index]);
  };
  for (std::size_t i = kHeldBackShare - 1; i < prompts.size(); i += kHeldBackShare) hold_back(i);
  if (held_back.empty() && !prompts.empty()) hold_back(prompts.size() - 1);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const bool trained = parts[i] == Part::kTraining;
    if (trained && held_back.contains(prompts[i])) parts[i] = Part::kLeftOut;
  }
  return parts;
}

void leave_out_held_back(std::vector<std::vector<TokenId>>& training,
                         std::span<const std::vector<TokenId>> held_back) {
  const std::set<std::vector<TokenId>> known(held_back.begin(), held_back.end());
  std::erase_if(training, [&](const std::vector<TokenId>& ids) { return known.contains(ids); });
}

}  // namespace kakeya::train
