#include "drafter_tensors.h"

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
  KAKEYA_ASSIGN_OR_RETURN(KvCache context,
                          KvCache::create(dflash::plan_context(config, input.context + block, rows,
                                                               {.format = KvFormat::kF32}),
                                          budget));
  KAKEYA_ASSIGN_OR_RETURN(
      const auto executor,
      engine.backend().create_executor(dflash::plan_drafter_executor(config, rows), budget));
  Arena measure;
  dflash::DraftActivations::layout(measure, config, rows);
  KAKEYA_ASSIGN_OR_RETURN(const Buffer memory,
                          budget.allocate(MemoryClass::kActivations, measure.used()));
  Arena arena(memory.data());
  const auto activations = dflash::DraftActivations::layout(arena, config, rows);

  const std::int64_t width = config.layers.hidden_size;
  KAKEYA_TRY(context.reserve(input.context));
  const auto tap_width = static_cast<std::int64_t>(input.taps.size()) / input.context;
  const BatchBuilder features_of =
      BatchBuilder::one_of_rows(input.context, context.length(), context.layers());
  drafter.extend_context({input.taps.data(), input.context, tap_width}, features_of.batch(),
                         *executor, activations);
  context.commit(input.context);
  if (out.empty()) {
    const float* features = activations.features.data;
    out.push_back(
        {"context_features", {input.context, width}, {features, features + input.context * width}});
  }
  KAKEYA_TRY(context.reserve(block));
  std::vector<float> logits(static_cast<std::size_t>(block * config.layers.vocab_size));
  const BatchBuilder block_of =
      BatchBuilder::one(input.block, context.length(), context.layers(), block);
  const ConstRows hidden = drafter.forward(block_of.batch(), *executor, activations,
                                           {logits.data(), block, config.layers.vocab_size});
  out.push_back({mode + ".hidden", {block, width}, {hidden.data, hidden.data + block * width}});
  out.push_back({mode + ".logits", {block, config.layers.vocab_size}, std::move(logits)});
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
