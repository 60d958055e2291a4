// The published drafters whose targets have a name (formats/named_shapes.h).
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "base/status.h"
#include "formats/drafter_config.h"
#include "formats/named_shapes.h"
#include "formats/spread_taps.h"

namespace kakeya {
namespace {

// The properties of drafters that do not follow from their targets. Sizes: the published
// config.json files.
struct DrafterShape {
  std::string_view target;
  std::int64_t num_attention_heads;
  std::int64_t intermediate_size;
  std::int64_t taps;
};

constexpr DrafterShape kDrafterShapes[] = {
    {"gemma4-26b-a4b", 32, 5632, 6}, {"gemma4-31b", 64, 10752, 6}, {"gemma4-12b", 32, 7680, 6},
    {"qwen3-4b", 32, 9728, 5},       {"qwen3-8b", 32, 12288, 5},
};

ModelConfig drafter_layers(const DrafterShape& shape, const ModelConfig& target) {
  const bool gemma = target.architecture == Architecture::kGemma4;
  ModelConfig layers;
  layers.architecture = Architecture::kQwen3;
  layers.model_type = "qwen3";
  layers.vocab_size = target.vocab_size;
  layers.hidden_size = target.hidden_size;
  layers.intermediate_size = shape.intermediate_size;
  layers.num_hidden_layers = 5;
  layers.num_attention_heads = shape.num_attention_heads;
  layers.num_key_value_heads = 8;
  layers.num_global_key_value_heads = 8;
  layers.head_dim = 128;
  layers.global_head_dim = 128;
  layers.max_position_embeddings = target.max_position_embeddings;
  layers.hidden_activation = Activation::kSilu;
  layers.rope_full = {.rope_theta = 1e6};
  layers.rope_sliding = layers.rope_full;
  layers.layer_types.assign(5, gemma ? LayerType::kSliding : LayerType::kFull);
  layers.layer_types.back() = LayerType::kFull;
  if (gemma) {
    layers.sliding_window = 2048;
    layers.final_logit_softcapping = 30.0F;
  }
  return layers;
}

}  // namespace

Result<DrafterConfig> named_drafter_shape(std::string_view target_name,
                                          std::int64_t target_layers) {
  const auto* const shape =
      std::find_if(std::begin(kDrafterShapes), std::end(kDrafterShapes),
                   [&](const DrafterShape& known) { return known.target == target_name; });
  if (shape == std::end(kDrafterShapes)) {
    std::vector<std::string_view> names;
    for (const DrafterShape& known : kDrafterShapes) names.push_back(known.target);
    return error(StatusCode::kNotFound, "'{}' has no published drafter; {} have one", target_name,
                 fmt::join(names, ", "));
  }
  KAKEYA_ASSIGN_OR_RETURN(const ModelConfig target, named_shape(target_name, target_layers));
  const std::int64_t depth = target.num_hidden_layers;
  if (depth < shape->taps) {
    return invalid_argument("the drafter of {} taps {} layers but the target has {}", target_name,
                            shape->taps, depth);
  }
  DrafterConfig config;
  config.layers = drafter_layers(*shape, target);
  config.block_size = 16;
  config.mask_token_id = target.architecture == Architecture::kGemma4 ? 4 : 151669;
  config.num_target_layers = depth;
  config.target_layer_ids = has_default_taps(depth, shape->taps)
                                ? default_taps(depth, shape->taps)
                                : spread_taps(0, depth - 1, shape->taps);
  return config;
}

}  // namespace kakeya
