// config.json of a DFlash drafter: a Qwen3-style stack of layers that borrows its target's
// embedding and head. Field names are those of the published files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model_config.h"
#include "formats/model_tensors.h"
#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya {

struct DrafterConfig {
  // The layers: sizes, layer types (sliding ones allowed), window, RoPE, norms. vocab_size is the
  // target's; final_logit_softcapping is the drafter's own (top level or in dflash_config).
  ModelConfig layers;
  std::int64_t block_size = 0;  // rows of a block: the known token and block_size - 1 drafts
  TokenId mask_token_id = 0;
  std::vector<std::int64_t> target_layer_ids;  // the target's layers whose outputs are tapped
  std::int64_t num_target_layers = 0;          // of the target it was trained for
  float output_multiplier = 1.0F;              // of the logits, before the soft-cap
  std::optional<bool> is_causal;               // is_causal, or dflash_config.causal
  std::optional<float> input_embedding_scale;  // top level or in dflash_config

  static constexpr std::int64_t kMaxBlockSize = 64;
};

// Errors: kInvalidArgument for malformed JSON or an impossible value (which field, expected, got);
// kUnimplemented for a network that is not DFlash (DFlash2's convolutions and selector, for one).
Result<DrafterConfig> parse_drafter_config(std::string_view json);

// Reads DIR/config.json. Errors as above and kNotFound, with the path.
Result<DrafterConfig> load_drafter_config(const std::string& dir);

// Every tensor of the drafter by its name without prefix.
std::vector<TensorSpec> expected_tensors(const DrafterConfig& config);

// Checks that the drafter fits the target: hidden size, vocabulary, number of layers, tapped layers.
// Errors: kInvalidArgument, naming the field and both sides' values.
Status check_drafter_fits(const DrafterConfig& drafter, const ModelConfig& target);

// The published drafter of a named target shape ("gemma4-26b-a4b"); with `target_layers` smaller than the published
// number the taps are spread over those layers. Errors: kNotFound for a shape without a published drafter.
Result<DrafterConfig> named_drafter_shape(std::string_view target_name, std::int64_t target_layers);

}  // namespace kakeya
