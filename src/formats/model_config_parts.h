// The parts of reading config.json that have rules of their own: layer types and RoPE. Used by
// formats/model_config.cc only.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/json_document.h"
#include "formats/model_config.h"

namespace kakeya {

// Fills layer_types and sliding_window. Needs architecture and num_hidden_layers.
Status read_layer_types(const JsonFields& text, ModelConfig& config);

// Fills rope_sliding and rope_full from rope_parameters (by layer type, or one for all) or from the
// older rope_theta and rope_scaling. Needs architecture.
Status read_rope(const JsonFields& text, ModelConfig& config);

// Appends the ids that `target` does not hold yet.
void add_token_ids(const std::vector<std::int64_t>& ids, std::vector<TokenId>& target);

}  // namespace kakeya
