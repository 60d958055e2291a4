// Configurations of drafters that are trained.
#pragma once

#include <cstdint>
#include <string>

#include "formats/drafter_config.h"
#include "formats/model_config.h"
#include "kakeya/status.h"

namespace kakeya::train {

// config.json of a drafter of so many layers for `target`: its heads and widths are the target's
// sliding layers', its taps spread over the target's layers; every layer is full and sees the whole
// block. Errors: kInvalidArgument for layers or a block size out of range, or a target of too few
// layers.
Result<std::string> new_drafter_config(const ModelConfig& target,
                                       std::int64_t layers,
                                       std::int64_t block_size,
                                       float embed_scale,
                                       TokenId mask_id);

// The text of DIR/config.json with block_size replaced, unless that is 0. Errors: as
// load_drafter_config; kUnimplemented for a GGUF file.
Result<std::string> read_drafter_config_text(const std::string& dir, std::int64_t block_size);

}  // namespace kakeya::train
