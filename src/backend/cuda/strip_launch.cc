#include "backend/cuda/strip_launch.h"

#include <algorithm>

#include "backend/cuda/device/split_strips.h"
#include "backend/cuda/launch_shapes.h"

namespace kakeya::cuda {
namespace {

constexpr int kBlockWords = (96 << 10) / 4;
// Large cards have 132 multiprocessors, with room for two blocks each.
constexpr std::int64_t kMultiprocessors = 132;
constexpr std::int64_t kCardBlocks = 2 * kMultiprocessors;
// The words with which two blocks have room on a multiprocessor, and one on those of small cards.
constexpr int kSplitWords = (98 << 10) / 4;
// From how many strips on a warp for each keeps a card as busy as four.
constexpr std::int64_t kMostSplitStrips = 1024;
// A copy has two steps of four bits at least, four where many warps have copies under way.
constexpr int kLeastCopyWords = 288;
constexpr int kCopyWords = 576;

// The warps of a block whose rows wait for one load each, not for one after the other.
template <int kRows>
int block_warps(const device::StripPlan& plan) {
  return kRows == 1 ? plan.warps : device::kStripWarps;
}

LaunchShape strip_shape(std::int64_t blocks_x, std::int64_t blocks_y, int warps, int words) {
  return {blocks_x, blocks_y, warps * dev::kWarp, static_cast<std::uint32_t>(words)};
}

// As many warps of a block as leave work to every multiprocessor.
int choose_warps(std::int64_t items) {
  int warps = device::kStripWarps;
  while (warps > 1 && items < warps * kMultiprocessors) warps /= 2;
  return warps;
}

// Chunks and copies for which `words_of(plan)` words suffice. Few warps have larger copies.
template <typename WordsOf>
device::StripPlan plan_memory(std::int64_t columns,
                              const StripNeeds& needs,
                              int warps,
                              const WordsOf& words_of) {
  device::StripPlan plan = {};
  plan.has_halves = needs.halves;
  plan.warps = warps;
  plan.copy_words = std::max(needs.words, kLeastCopyWords);
  plan.chunk_steps = static_cast<std::int32_t>(device::num_steps(columns));
  while (plan.chunk_steps > 1 && words_of(plan) > kBlockWords) {
    plan.chunk_steps = (plan.chunk_steps + 1) / 2;
  }
  const int copies = warps * device::kRingCopies;
  const int room = plan.copy_words + (kBlockWords - words_of(plan)) / copies;
  const int wanted = kCopyWords * std::max(1, 4 / warps);
  const int pair = 2 * needs.words;  // steps are added up two at a time
  plan.copy_words = std::max(plan.copy_words, std::min(wanted, room) / pair * pair);
  return plan;
}

template <int kRows>
device::StripPlan plan_strips(std::int64_t columns, const StripNeeds& needs, int warps) {
  return plan_memory(columns, needs, warps, device::strip_words<kRows>);
}

}  // namespace

StripNeeds::StripNeeds(std::initializer_list<const CudaMatrix*> matrices) {
  for (const CudaMatrix* matrix : matrices) {
    words = std::max(words, device::StepLayout(matrix->weight()).words());
    halves = halves || matrix->weight().halves;
  }
}

template <int kRows>
StripLaunch strip_launch(std::int64_t items,
                         std::int64_t tiles,
                         std::int64_t columns,
                         const StripNeeds& needs) {
  const int warps = choose_warps(items * tiles);
  device::StripPlan plan = plan_strips<kRows>(columns, needs, warps);
  const std::int64_t groups = ceil_div(items, warps);
  const std::int64_t blocks = tiles == 1 ? std::min(groups, kCardBlocks) : groups;
  plan.blocks = static_cast<std::int32_t>(blocks);
  plan.reads_once = tiles == 1;
  return {
      strip_shape(blocks * tiles, 1, block_warps<kRows>(plan), device::strip_words<kRows>(plan)),
      plan};
}
template StripLaunch strip_launch<1>(std::int64_t, std::int64_t, std::int64_t, const StripNeeds&);
template StripLaunch strip_launch<device::kIntegerRows>(std::int64_t,
                                                        std::int64_t,
                                                        std::int64_t,
                                                        const StripNeeds&);
template StripLaunch strip_launch<device::kManyIntegerRows>(std::int64_t,
                                                            std::int64_t,
                                                            std::int64_t,
                                                            const StripNeeds&);

StripLaunch grouped_launch(std::int64_t items,
                           std::int64_t tiles,
                           std::int64_t columns,
                           const StripNeeds& needs) {
  constexpr int kRows = device::kGroupedRows;
  const int warps = choose_warps(items * tiles);
  device::StripPlan plan = plan_strips<kRows>(columns, needs, warps);
  // Some of the tiles have no rows.
  const std::int64_t blocks = std::min(ceil_div(items, warps), ceil_div(2 * kCardBlocks, tiles));
  plan.blocks = static_cast<std::int32_t>(blocks);
  plan.reads_once = tiles <= kMultiprocessors;
  return {strip_shape(blocks, tiles, block_warps<kRows>(plan), device::strip_words<kRows>(plan)),
          plan};
}

std::optional<StripLaunch> split_launch(std::int64_t items,
                                        std::initializer_list<const CudaMatrix*> matrices) {
  const auto parts = static_cast<std::int64_t>(matrices.size());
  if (items * parts > kMostSplitStrips) return std::nullopt;
  device::StripPlan plan = {};
  plan.has_halves = StripNeeds(matrices).halves;
  std::int64_t words = 0;
  for (const CudaMatrix* matrix : matrices) {
    const std::int64_t steps = device::num_steps(matrix->cols());
    if (words == 0) {
      words = device::StripRows<1>(0, static_cast<int>(steps), plan.has_halves).words();
    }
    words += steps * device::StepLayout(matrix->weight()).words();
  }
  if (words > kSplitWords) return std::nullopt;
  return StripLaunch{
      strip_shape(items, 1, device::kSplitWarps * static_cast<int>(parts), static_cast<int>(words)),
      plan};
}

StripLaunch rank_launch(std::int64_t strips,
                        std::int64_t top_k,
                        std::int64_t columns,
                        const StripNeeds& needs) {
  const int warps = static_cast<int>(std::min<std::int64_t>(top_k, device::kStripWarps));
  const auto words_of = [&](const device::StripPlan& plan) {
    return device::output_words(plan, top_k, warps);
  };
  device::StripPlan plan = plan_memory(columns, needs, warps, words_of);
  plan.blocks = static_cast<std::int32_t>(strips);
  plan.reads_once = true;
  return {strip_shape(strips, 1, warps, words_of(plan)), plan};
}

}  // namespace kakeya::cuda
