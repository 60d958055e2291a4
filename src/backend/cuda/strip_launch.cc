#include "backend/cuda/strip_launch.h"

#include <algorithm>
#include <initializer_list>

#include "backend/cuda/device/few_experts.h"
#include "backend/cuda/device/integer_tiles.h"
#include "backend/cuda/device/plain_outputs.h"
#include "backend/cuda/launch_shapes.h"

namespace kakeya::cuda {
namespace {

constexpr int kBlockWords = (96 << 10) / 4;
constexpr int kMostBlockWords = (99 << 10) / 4;  // on any card
// Large cards have 132 multiprocessors, with room for two blocks each.
constexpr std::int64_t kMultiprocessors = 132;
constexpr std::int64_t kCardBlocks = 2 * kMultiprocessors;
// The words with which two blocks have room on a multiprocessor, and one on those of small cards.
constexpr int kSplitWords = (98 << 10) / 4;
// From how many strips on a warp for each keeps a card as busy as four.
constexpr std::int64_t kMostSplitStrips = 1024;
// From how many rows on a product has tiles, from how many pairs of an expert its products have.
constexpr std::int64_t kLeastTiledRows = 33;
constexpr std::int64_t kLeastTiledPairs = 8;
// A copy has two steps of four bits at least, four where many warps have copies under way.
constexpr int kLeastCopyWords = 288;
constexpr int kCopyWords = 576;

// Memory that a block needs for some matrices.
struct StripNeeds {
  std::int64_t columns;
  int words = 0;  // of the largest step
  bool halves = false;

  StripNeeds(std::int64_t width, std::initializer_list<const device::Weight*> matrices)
      : columns(width) {
    for (const device::Weight* matrix : matrices) add(*matrix);
  }
  void add(const device::Weight& matrix) {
    words = std::max(words, device::StepLayout(matrix).words());
    halves = halves || matrix.halves;
  }
};

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
device::StripPlan plan_memory(const StripNeeds& needs, int warps, const WordsOf& words_of) {
  device::StripPlan plan = {};
  plan.has_halves = needs.halves;
  plan.warps = warps;
  plan.copy_words = std::max(needs.words, kLeastCopyWords);
  plan.chunk_steps = static_cast<std::int32_t>(device::num_steps(needs.columns));
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

// A block of a plan for tiles of kRows rows. Of several rows all of its warps bring parts, each
// with one load behind the other only where rows are long.
template <int kRows>
LaunchShape plan_shape(const device::StripPlan& plan,
                       std::int64_t blocks_x,
                       std::int64_t blocks_y) {
  return strip_shape(blocks_x, blocks_y, kRows == 1 ? plan.warps : device::kStripWarps,
                     device::strip_words<kRows>(plan));
}

// Blocks that take `items`, strips or pairs of them, with `rows` rows. Of one tile of rows not more
// blocks than cards have room for.
template <int kRows>
LaunchShape plan_items(std::int64_t items,
                       std::int64_t rows,
                       const StripNeeds& needs,
                       device::StripPlan& plan) {
  const std::int64_t tiles = ceil_div(rows, kRows);
  const int warps = choose_warps(items * tiles);
  plan = plan_memory(needs, warps, device::strip_words<kRows>);
  const std::int64_t groups = ceil_div(items, warps);
  const std::int64_t blocks = tiles == 1 ? std::min(groups, kCardBlocks) : groups;
  plan.blocks = static_cast<std::int32_t>(blocks);
  plan.reads_once = tiles == 1;
  return plan_shape<kRows>(plan, blocks * tiles, 1);
}

// A warp for each of `items`, pairs of a gate and what it gates, of one tile of rows.
LaunchShape plan_halves(std::int64_t items, const StripNeeds& needs, device::StripPlan& plan) {
  constexpr int kRows = device::kIntegerRows;
  plan = plan_memory(needs, std::max(2, choose_warps(items)), device::strip_words<kRows>);
  plan.blocks = static_cast<std::int32_t>(ceil_div(items, plan.warps));
  plan.reads_once = true;
  return plan_shape<kRows>(plan, plan.blocks, 1);
}

LaunchShape plan_grouped(std::int64_t items,
                         std::int64_t tiles,
                         const StripNeeds& needs,
                         device::StripPlan& plan) {
  constexpr int kRows = device::kGroupedRows;
  const int warps = choose_warps(items * tiles);
  plan = plan_memory(needs, warps, device::strip_words<kRows>);
  const std::int64_t blocks = std::min(ceil_div(items, warps), ceil_div(2 * kCardBlocks, tiles));
  plan.blocks = static_cast<std::int32_t>(blocks);
  plan.reads_once = tiles <= kMultiprocessors;
  return plan_shape<kRows>(plan, blocks, tiles);
}

// Blocks whose four warps share each of `parts` strips, which take `step_words` of a step together;
// nothing where those are too many or do not fit.
std::optional<LaunchShape> plan_split(std::int64_t items,
                                      int parts,
                                      int step_words,
                                      const StripNeeds& needs,
                                      device::StripPlan& plan) {
  if (items * parts > kMostSplitStrips) return std::nullopt;
  const auto steps = static_cast<int>(device::num_steps(needs.columns));
  const int words = device::StripRows<1>(0, steps, needs.halves).words() + steps * step_words;
  if (words > kSplitWords) return std::nullopt;
  plan = {};
  plan.has_halves = needs.halves;
  return strip_shape(items, 1, device::kSplitWarps * parts, words);
}

// The blocks of plain_product(), where they fit.
std::optional<LaunchShape> plan_plain(std::int64_t strips, std::int64_t columns) {
  const int words = device::plain_product_words(static_cast<int>(device::num_steps(columns)));
  if (strips > kMostSplitStrips || words > kSplitWords) return std::nullopt;
  return strip_shape(strips, 1, device::kPlainWarps, words);
}

// True if tiles (integer_tiles.h) have both matrices in one block.
bool are_for_tiles(const device::Weight& a, const device::Weight& b) {
  const auto is_plain = [](const device::Weight& w) {
    return w.type == device::WeightType::kIntegers && w.half_scales;
  };
  return is_plain(a) && is_plain(b) && a.four_bits == b.four_bits && a.zero == b.zero;
}

LaunchShape tile_shape(const device::Weight& weight, std::int64_t blocks_x, std::int64_t blocks_y) {
  return strip_shape(blocks_x, blocks_y, device::kTileWarps, device::tile_words(weight.four_bits));
}

// Tiles of as many rows as leave the least to the multiprocessor that has most of them. What a
// block does for its strips alone takes as long as so many rows.
LaunchShape plan_tiles(const device::Weight& weight,
                       std::int64_t strips,
                       std::int64_t rows,
                       device::StripPlan& plan) {
  constexpr std::int64_t kRowsOfStrips = 12;
  const std::int64_t outputs = ceil_div(strips, device::kTileStrips);
  std::int64_t least = INT64_MAX;
  plan = {};
  for (int of_tile = device::kTileRows; of_tile >= 16; of_tile -= 16) {
    const std::int64_t turns = ceil_div(outputs * ceil_div(rows, of_tile), kMultiprocessors);
    if (turns * (of_tile + kRowsOfStrips) >= least) continue;
    least = turns * (of_tile + kRowsOfStrips);
    plan.tile_rows = of_tile;
  }
  return tile_shape(weight, outputs * ceil_div(rows, plan.tile_rows), 1);
}

int step_words(const device::Weight& gate, const device::Weight& up) {
  return device::StepLayout(gate).words() + device::StepLayout(up).words();
}

// The blocks of plain_expert_hidden(), if its experts are for it and fit.
std::optional<LaunchShape> plan_plain_hidden(const device::ExpertHiddenParams& p) {
  const std::int64_t steps = device::num_steps(p.rows.width);
  const std::int64_t strips = device::num_strips(p.gate.rows);
  if (!device::is_plain(p.gate) || !device::is_plain(p.up)) return std::nullopt;
  if (steps > device::kSplitWarps * device::kMostQuarterSteps) return std::nullopt;
  if (2 * strips * p.top_k > kMostSplitStrips) return std::nullopt;
  const int words = device::plain_hidden_words(static_cast<int>(steps));
  if (words > kSplitWords) return std::nullopt;
  return strip_shape(ceil_div(strips, device::kRunStrips), p.top_k, device::kRunWarps, words);
}

// The block of plain_expert_output(), if a card has room for two beside those that make what it
// reads.
std::optional<LaunchShape> plan_plain_output(const device::ExpertOutputParams& p) {
  const auto steps = static_cast<int>(device::num_steps(p.rows.width));
  if (!device::is_plain(p.down) || p.top_k > device::kMostPlainRanks) return std::nullopt;
  const auto ranks = static_cast<int>(p.top_k);
  const int words = device::plain_output_words(steps, ranks);
  if (words > kSplitWords) return std::nullopt;
  return strip_shape(device::num_strips(p.down.rows), 1, ranks, words);
}

// As many blocks as have room on a card at once, each with an equal share of `items` a tile;
// nothing if one met more tiles than it has room for, or if pairs are not in order of
// group_experts().
std::optional<LaunchShape> plan_shares(std::int64_t items,
                                       std::int64_t pairs,
                                       const PairTiles& tiles,
                                       int warps,
                                       int words,
                                       device::StripPlan& plan) {
  if (pairs > device::kGroupingThreads || tiles.pairs != device::kGroupedRows) return std::nullopt;
  if (tiles.count > (device::kShareTiles - 1) * kMultiprocessors) return std::nullopt;
  if (words > kMostBlockWords) return std::nullopt;
  plan = {};
  plan.blocks = static_cast<std::int32_t>(std::min(kMultiprocessors, items * tiles.count));
  return strip_shape(plan.blocks, 1, warps, words);
}

std::optional<StripLaunch> plan_few_hidden(device::ExpertHiddenParams& p, const PairTiles& tiles) {
  constexpr std::int64_t kRunColumns = device::kRunStrips * device::kStripOutputs;
  if (!device::is_plain(p.gate) || !device::is_plain(p.up)) return std::nullopt;
  if (p.rows.count > device::kManyIntegerRows || p.gate.rows % kRunColumns != 0) {
    return std::nullopt;
  }
  const bool has_many_rows = p.rows.count > device::kIntegerRows;
  const auto steps = static_cast<int>(device::num_steps(p.rows.width));
  auto shape = plan_shares(p.gate.rows / kRunColumns, p.rows.count * p.top_k, tiles,
                           has_many_rows ? device::kManyRowsWarps : device::kFewWarps,
                           device::few_hidden_words(steps, has_many_rows), p.plan);
  if (!shape) return std::nullopt;
  shape->is_spread = true;
  return StripLaunch{has_many_rows ? Kernel::few_expert_hidden_rows : Kernel::few_expert_hidden,
                     *shape};
}

std::optional<StripLaunch> plan_few_output(device::ExpertOutputParams& p, const PairTiles& tiles) {
  if (!device::is_plain(p.down)) return std::nullopt;
  const auto steps = static_cast<int>(device::num_steps(p.rows.width));
  const auto shape = plan_shares(device::num_strips(p.down.rows), p.rows.count, tiles,
                                 device::kFewWarps, device::few_output_words(steps), p.plan);
  if (!shape) return std::nullopt;
  return StripLaunch{Kernel::few_expert_output, *shape};
}

}  // namespace

StripLaunch plan_product(device::IntegerProductParams& p) {
  StripNeeds needs(p.rows.width, {});
  std::int64_t items = 0;
  bool is_for_tiles = p.rows.count >= kLeastTiledRows;
  bool is_plain = true;
  for (std::int64_t i = 0; i < p.num_parts; ++i) {
    needs.add(p.parts[i].weight);
    is_for_tiles = is_for_tiles && are_for_tiles(p.parts[0].weight, p.parts[i].weight);
    is_plain = is_plain && device::is_plain(p.parts[i].weight);
    items += device::num_strips(p.parts[i].weight.rows);
  }
  if (p.rows.count == 1) {
    if (const auto shape = plan_plain(items, p.rows.width); shape && is_plain) {
      p.plan = {};
      return {Kernel::plain_product, *shape};
    }
    if (const auto shape = plan_split(items, 1, needs.words, needs, p.plan)) {
      return {Kernel::split_integer_product, *shape};
    }
    return {Kernel::integer_row_product, plan_items<1>(items, 1, needs, p.plan)};
  }
  if (p.rows.count <= device::kIntegerRows) {
    return {Kernel::integer_product,
            plan_items<device::kIntegerRows>(items, p.rows.count, needs, p.plan)};
  }
  if (is_for_tiles) {
    return {Kernel::integer_product_tiles,
            plan_tiles(p.parts[0].weight, items, p.rows.count, p.plan)};
  }
  return {Kernel::integer_product_rows,
          plan_items<device::kManyIntegerRows>(items, p.rows.count, needs, p.plan)};
}

StripLaunch plan_gated_product(device::GatedProductParams& p) {
  const StripNeeds needs(p.rows.width, {&p.gate, &p.up});
  const std::int64_t items = device::num_strips(p.gate.rows);
  if (p.rows.count == 1) {
    if (const auto shape = plan_split(items, 2, step_words(p.gate, p.up), needs, p.plan)) {
      return {Kernel::split_gated_product, *shape};
    }
  }
  if (p.rows.count <= device::kIntegerRows) {
    return {Kernel::gated_integer_product, plan_halves(2 * items, needs, p.plan)};
  }
  if (p.rows.count >= kLeastTiledRows && are_for_tiles(p.gate, p.up)) {
    return {Kernel::gated_integer_product_tiles,
            plan_tiles(p.gate, 2 * items, p.rows.count, p.plan)};
  }
  return {Kernel::gated_integer_product_rows,
          plan_items<device::kManyIntegerRows>(items, p.rows.count, needs, p.plan)};
}

std::optional<StripLaunch> plan_hidden(device::ExpertHiddenParams& p) {
  if (const auto plain = plan_plain_hidden(p)) {
    return StripLaunch{Kernel::plain_expert_hidden, *plain};
  }
  const StripNeeds needs(p.rows.width, {&p.gate, &p.up});
  const auto shape = plan_split(device::num_strips(p.gate.rows) * p.top_k, 2,
                                step_words(p.gate, p.up), needs, p.plan);
  if (!shape) return std::nullopt;
  return StripLaunch{Kernel::split_expert_hidden, *shape};
}

StripLaunch plan_output(device::ExpertOutputParams& p, bool are_rounded) {
  if (are_rounded) {
    if (const auto plain = plan_plain_output(p)) return {Kernel::plain_expert_output, *plain};
  }
  const int warps = static_cast<int>(std::min<std::int64_t>(p.top_k, device::kStripWarps));
  const auto words_of = [&](const device::StripPlan& plan) {
    return device::output_words(plan, p.top_k, warps);
  };
  const std::int64_t strips = device::num_strips(p.down.rows);
  p.plan = plan_memory(StripNeeds(p.rows.width, {&p.down}), warps, words_of);
  p.plan.blocks = static_cast<std::int32_t>(strips);
  p.plan.reads_once = true;
  return {Kernel::integer_expert_output, strip_shape(strips, 1, warps, words_of(p.plan))};
}

std::optional<LaunchShape> plan_beside(const device::IntegerProductParams& p,
                                       const LaunchShape& outputs) {
  const int strips = device::strips_beside(outputs.threads / dev::kWarp);
  const auto steps = static_cast<int>(device::num_steps(p.rows.width));
  const auto words = static_cast<std::uint32_t>(device::plain_product_words(steps, strips));
  if (words > kSplitWords) return std::nullopt;
  LaunchShape both = outputs;
  both.blocks_x += ceil_div(device::num_strips(p.parts[0].weight.rows), strips);
  both.shared_words = std::max(both.shared_words, words);
  return both;
}

PairTiles choose_pair_tiles(const device::Weight& gate,
                            const device::Weight& up,
                            const device::Weight& down,
                            std::int64_t pairs,
                            std::int64_t num_experts) {
  const bool has_tiles = pairs >= kLeastTiledPairs * num_experts && are_for_tiles(gate, up) &&
                         are_for_tiles(down, down);
  const std::int64_t of_tile = has_tiles ? device::kTileRows : device::kGroupedRows;
  return {count_expert_tiles(pairs, num_experts, of_tile), of_tile};
}

StripLaunch plan_grouped_hidden(device::ExpertHiddenParams& p, const PairTiles& tiles) {
  const std::int64_t strips = device::num_strips(p.gate.rows);
  if (tiles.pairs == device::kTileRows) {
    return {Kernel::tiled_expert_hidden,
            tile_shape(p.gate, ceil_div(2 * strips, device::kTileStrips), tiles.count)};
  }
  if (const auto few = plan_few_hidden(p, tiles)) return *few;
  return {Kernel::grouped_integer_hidden,
          plan_grouped(strips, tiles.count, StripNeeds(p.rows.width, {&p.gate, &p.up}), p.plan)};
}

StripLaunch plan_grouped_output(device::ExpertOutputParams& p, const PairTiles& tiles) {
  const std::int64_t strips = device::num_strips(p.down.rows);
  if (tiles.pairs == device::kTileRows) {
    return {Kernel::tiled_expert_output,
            tile_shape(p.down, ceil_div(strips, device::kTileStrips), tiles.count)};
  }
  if (const auto few = plan_few_output(p, tiles)) return *few;
  return {Kernel::grouped_integer_output,
          plan_grouped(strips, tiles.count, StripNeeds(p.rows.width, {&p.down}), p.plan)};
}

}  // namespace kakeya::cuda
