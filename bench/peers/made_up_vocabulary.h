// A vocabulary that is valid but means nothing, for files whose tokens are given by number.
#pragma once

#include <vector>

#include "formats/gguf_write.h"
#include "formats/model_config.h"

namespace kakeya::peers {

// The keys tokenizer.* of a Gemma 4 model: special tokens, all bytes, the alphabet with one merge,
// and then names that no text has, as many as the embedding has rows.
std::vector<GgufMetadata> made_up_vocabulary(const ModelConfig& config);

}  // namespace kakeya::peers
