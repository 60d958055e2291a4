#include "drafter_tensors.h"

#include <cstring>
#include <utility>

#include "base/status.h"
#include "eval/drafter/drafter_pass.h"
#include "formats/safetensors.h"
#include "tensor/tensor_view.h"

namespace kakeya::cli {
namespace {

Result<eval::DrafterInput> read_input(const std::string& path, const DrafterConfig& config) {
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
  eval::DrafterInput input;
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

}  // namespace

Result<std::vector<NamedTensor>> drafter_tensors(EngineImpl& engine, const std::string& path) {
  constexpr std::pair<DraftMask, const char*> kModes[] = {
      {DraftMask::kBidirectional, "bidirectional"},
      {DraftMask::kAuto, "auto"},
      {DraftMask::kCausal, "causal"}};
  if (engine.drafter() == nullptr) {
    return error(StatusCode::kFailedPrecondition, "--drafter-golden needs a drafter: --draft DIR");
  }
  KAKEYA_ASSIGN_OR_RETURN(const eval::DrafterInput input,
                          read_input(path, engine.drafter()->config()));
  std::vector<NamedTensor> tensors;
  for (const auto& [mask, name] : kModes) {
    KAKEYA_ASSIGN_OR_RETURN(const auto drafter, engine.load_drafter(mask));
    KAKEYA_ASSIGN_OR_RETURN(eval::DrafterOutput output, eval::run_drafter(engine, *drafter, input));
    const std::int64_t width = drafter->config().layers.hidden_size;
    const auto block = static_cast<std::int64_t>(input.block.size());
    // Context features are equal for every mask rule.
    if (tensors.empty()) {
      tensors.push_back({"context_features", {input.context, width}, std::move(output.features)});
    }
    tensors.push_back({std::string(name) + ".hidden", {block, width}, std::move(output.hidden)});
    tensors.push_back({std::string(name) + ".logits",
                       {block, drafter->config().layers.vocab_size},
                       std::move(output.logits)});
  }
  return tensors;
}

}  // namespace kakeya::cli
