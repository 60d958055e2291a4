#include "eval/drafter/drafter_pass.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/status.h"

namespace kakeya::eval {

Result<DrafterOutput> run_drafter(EngineImpl& engine,
                                  const dflash::Drafter& drafter,
                                  const DrafterInput& input) {
  const DrafterConfig& config = drafter.config();
  const auto block = static_cast<std::int64_t>(input.block.size());
  const std::int64_t rows = std::max(input.context, block);
  MemoryBudget budget;
  MemorySpace& space = engine.backend().memory();
  KAKEYA_ASSIGN_OR_RETURN(KvCache context,
                          KvCache::create(dflash::plan_context(config, input.context + block, rows,
                                                               {.format = KvFormat::kF32}),
                                          budget, space));
  KAKEYA_ASSIGN_OR_RETURN(
      const auto executor,
      engine.backend().create_executor(dflash::plan_drafter_executor(config, rows), budget));
  const auto tap_width = static_cast<std::int64_t>(input.taps.size()) / input.context;
  struct Pieces {
    dflash::DraftActivations activations;
    Rows taps;
    Rows logits;
  };
  const auto lay_out = [&](Arena arena) {
    Pieces pieces{dflash::DraftActivations::layout(arena, config, rows),
                  arena.rows(input.context, tap_width),
                  arena.rows(block, config.layers.vocab_size)};
    return std::pair(pieces, arena.used());
  };
  KAKEYA_ASSIGN_OR_RETURN(const Buffer memory, budget.allocate(MemoryClass::kActivations,
                                                               lay_out(Arena()).second, space));
  const Pieces pieces = lay_out(Arena(memory.device<std::byte>())).first;
  const auto download_rows = [&](ConstRows from) {
    std::vector<float> values(static_cast<std::size_t>(from.count * from.width));
    download(space, from.data, std::span(values));
    return values;
  };
  upload(space, std::span<const float>(input.taps), pieces.taps.data);
  KAKEYA_TRY(context.reserve(input.context));
  const BatchBuilder features_of =
      BatchBuilder::one_of_rows(input.context, context.length(), context.layers());
  executor->begin(features_of.batch());
  drafter.extend_context(pieces.taps, features_of.batch(), *executor, pieces.activations);
  context.commit(input.context);
  DrafterOutput output;
  output.features = download_rows(first_rows(pieces.activations.features, input.context));
  KAKEYA_TRY(executor->end({}));
  KAKEYA_TRY(context.reserve(block));
  const BatchBuilder block_of =
      BatchBuilder::one(input.block, context.length(), context.layers(), block);
  executor->begin(block_of.batch());
  const ConstRows hidden =
      drafter.forward(block_of.batch(), *executor, pieces.activations, pieces.logits);
  KAKEYA_TRY(executor->end(std::array<ConstRows, 2>{hidden, pieces.logits}));
  output.hidden = download_rows(hidden);
  output.logits = download_rows(pieces.logits);
  return output;
}

}  // namespace kakeya::eval
