// Configurations of drafters that are trained.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/drafter_config.h"
#include "formats/model_config.h"
#include "kakeya/status.h"

namespace kakeya::train {

struct NewDrafter {
  std::int64_t layers = 3;
  std::int64_t block_size = 16;
  std::vector<std::int64_t> taps = {};  // target_layer_ids; empty: spread over the target's layers
};

// config.json of such a drafter for `target`: its heads and widths are the target's sliding
// layers'; every layer is full and sees the whole block. Errors: kInvalidArgument for layers or a
// block size out of range; taps are checked when it is parsed.
Result<std::string> new_drafter_config(const ModelConfig& target,
                                       const NewDrafter& drafter,
                                       float embed_scale,
                                       TokenId mask_id);

// The text of DIR/config.json with block_size replaced, unless that is 0. Errors: as
// load_drafter_config; kUnimplemented for a GGUF file.
Result<std::string> read_drafter_config_text(const std::string& dir, std::int64_t block_size);

}  // namespace kakeya::train
