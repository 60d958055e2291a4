// What a GGUF file says of a model beside its tensors: sizes, and the tokenizer. Keys and values
// are those of llama.cpp's converter.
#pragma once

#include <string>
#include <vector>

#include "convert/source_model.h"
#include "formats/gguf_write.h"
#include "kakeya/status.h"

namespace kakeya {

// general.* and the architecture's keys. `file_type` is general.file_type. Errors: kUnimplemented
// for what the keys cannot say: a drafter, scaled RoPE.
Result<std::vector<GgufMetadata>> gguf_model_metadata(const SourceModel& model,
                                                      const std::string& name,
                                                      std::uint32_t file_type);

// tokenizer.*, of the folder's tokenizer.json, tokenizer_config.json and chat_template.jinja.
// Errors: kNotFound without tokenizer.json; kInvalidArgument if it is malformed; kUnimplemented for
// a tokenizer that is not BPE. Rows of the embedding that have no token are called "[PAD0]", ...;
// tokens may be more than the embedding has rows, which readers refuse.
Result<std::vector<GgufMetadata>> gguf_tokenizer_metadata(const SourceModel& model);

// The factors of the frequencies of Gemma 4's full layers, "rope_freqs.weight": 1 for pairs that
// turn, 1e30 for others. Empty for other models.
std::vector<float> gguf_rope_factors(const SourceModel& model);

}  // namespace kakeya
