#include "drafter_tensors.h"

#include <array>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "formats/safetensors.h"
#include "tensor/tensor_view.h"

namespace kakeya::cli {
namespace {

// What the file gives.
struct DrafterInput {
  std::vector<float> taps;  // [C, num_taps * D]
  std::int64_t context = 0;
  std::vector<TokenId> block;
};

Result<DrafterInput> read_input(const std::string& path, const DrafterConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(path));
  const TensorView* taps = file.find("aux");
  const TensorView* block = file.find("block_ids");
  if (taps == nullptr || block == nullptr) {
    return invalid_argument("{}: expected tensors aux and block_ids", path);
  }
  const auto width =
      static_cast<std::int64_t>(config.target_layer_ids.size()) * config.layers.hidden_size;
  if (taps->shape.size() != 2 || taps->shape[1] != width) {
    return invalid_argument("{}: aux must be [C, {}] but is {}", path, width,
                            shape_string(taps->shape));
  }
  if (block->shape.size() != 1 || block->dtype != DType::kI32 || block->shape[0] < 1 ||
      block->shape[0] > config.block_size) {
    return invalid_argument("{}: block_ids must be 1 to {} I32 ids but is {} {}", path,
                            config.block_size, dtype_name(block->dtype),
                            shape_string(block->shape));
  }
  DrafterInput input;
  KAKEYA_ASSIGN_OR_RETURN(input.taps, to_f32(*taps));
  input.context = taps->shape[0];
  input.block.resize(static_cast<std::size_t>(block->shape[0]));
  std::memcpy(input.block.data(), block->data, input.block.size() * sizeof(TokenId));
  for (const TokenId id : input.block) {
    if (id < 0 || id >= config.layers.vocab_size) {
      return invalid_argument("{}: block_ids holds {}, expected 0 to {}", path, id,
                              config.layers.vocab_size - 1);
    }
  }
  return input;
}

// Context and block in one go, with memory of its own.
Status run_drafter(EngineImpl& engine,
                   const dflash::Drafter& drafter,
                   const DrafterInput& input,
                   const std::string& mode,
                   std::vector<NamedTensor>& out) {
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
  const std::int64_t width = config.layers.hidden_size;
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
  if (out.empty()) {
    out.push_back({"context_features",
                   {input.context, width},
                   download_rows(first_rows(pieces.activations.features, input.context))});
  }
  KAKEYA_TRY(executor->end({}));
  KAKEYA_TRY(context.reserve(block));
  const BatchBuilder block_of =
      BatchBuilder::one(input.block, context.length(), context.layers(), block);
  executor->begin(block_of.batch());
  const ConstRows hidden =
      drafter.forward(block_of.batch(), *executor, pieces.activations, pieces.logits);
  KAKEYA_TRY(executor->end(std::array<ConstRows, 2>{hidden, pieces.logits}));
  out.push_back({mode + ".hidden", {block, width}, download_rows(hidden)});
  out.push_back(
      {mode + ".logits", {block, config.layers.vocab_size}, download_rows(pieces.logits)});
  return {};
}

}  // namespace

Result<std::vector<NamedTensor>> drafter_tensors(EngineImpl& engine,
                                                 const DraftOptions& options,
                                                 const std::string& path) {
  constexpr std::pair<DraftMask, const char*> kModes[] = {
      {DraftMask::kBidirectional, "bidirectional"},
      {DraftMask::kAuto, "auto"},
      {DraftMask::kCausal, "causal"}};
  if (engine.drafter() == nullptr) {
    return error(StatusCode::kFailedPrecondition, "--drafter-golden needs a drafter: --draft DIR");
  }
  KAKEYA_ASSIGN_OR_RETURN(const DrafterInput input, read_input(path, engine.drafter()->config()));
  std::vector<NamedTensor> tensors;
  for (const auto& [mask, name] : kModes) {
    DraftOptions own = options;
    own.mask = mask;
    KAKEYA_ASSIGN_OR_RETURN(const auto drafter, engine.load_drafter(own));
    KAKEYA_TRY(run_drafter(engine, *drafter, input, name, tensors));
  }
  return tensors;
}

}  // namespace kakeya::cli
