// The metadata of a model in a GGUF file: sizes, and the tokenizer. Keys and values are those of
// llama.cpp's converter.
#pragma once

#include <string>
#include <vector>

#include "formats/drafter_config.h"
#include "formats/gguf_write.h"
#include "formats/model_config.h"
#include "kakeya/status.h"

namespace kakeya {

// general.* and the architecture's keys of a model. `file_type` is general.file_type. Errors:
// kUnimplemented for scaled RoPE, which is not written.
Result<std::vector<GgufMetadata>> gguf_model_metadata(const ModelConfig& config,
                                                      const std::string& name,
                                                      std::uint32_t file_type);

// The keys of a DFlash drafter; the token of its mask is a key of the tokenizer.
Result<std::vector<GgufMetadata>> gguf_drafter_metadata(const DrafterConfig& config,
                                                        const std::string& name,
                                                        std::uint32_t file_type);

// tokenizer.*, of tokenizer.json, tokenizer_config.json and chat_template.jinja in the folder of a
// model with this configuration. Errors: kNotFound without tokenizer.json; kInvalidArgument if it
// is malformed; kUnimplemented for a tokenizer that GGUF cannot say (check_gguf_tokenizer()). Rows
// of the embedding that have no token are called "[PAD0]", ...; tokens may be more than the
// embedding has rows, which readers refuse.
Result<std::vector<GgufMetadata>> gguf_tokenizer_metadata(const std::string& dir,
                                                          const ModelConfig& config);

// The factors of the frequencies of Gemma 4's full layers, "rope_freqs.weight": 1 for pairs that
// turn, 1e30 for others. Empty for other models.
std::vector<float> gguf_rope_factors(const ModelConfig& config);

}  // namespace kakeya
