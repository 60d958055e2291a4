// The metadata of GGUF files as llama.cpp reads it: what config.json says, under other names, and a
// vocabulary that is valid but means nothing, since the comparison gives token ids.
#pragma once

#include <vector>

#include "formats/drafter_config.h"
#include "formats/gguf_write.h"
#include "formats/model_config.h"

namespace kakeya::peers {

// Of a Gemma 4 model. Errors: kUnimplemented for another architecture.
Result<std::vector<GgufMetadata>> model_metadata(const ModelConfig& config);

// Of a DFlash drafter, with the vocabulary of its target. Errors: as above, of the target.
Result<std::vector<GgufMetadata>> drafter_metadata(const DrafterConfig& config,
                                                   const ModelConfig& target);

// The divisors of the frequencies of a full layer: 1 for pairs that rotate, then one so large that
// the angle vanishes. [global_head_dim / 2]
std::vector<float> rope_factors(const ModelConfig& config);

}  // namespace kakeya::peers
