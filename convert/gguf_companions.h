// The files of a model's folder beside configuration and weights, of what a GGUF file says in its
// metadata; and the sampling that a folder recommends, as such metadata.
#pragma once

#include <string>
#include <vector>

#include "formats/gguf_checkpoint.h"
#include "formats/gguf_write.h"
#include "formats/model_config.h"
#include "kakeya/status.h"

namespace kakeya {

struct TextFile {
  std::string name;
  std::string text;
};

struct GgufCompanions {
  std::vector<TextFile> files;
  std::string left_out;  // the tokenizer, and why, if it is none that is known; else empty
};

// tokenizer.json and tokenizer_config.json, chat_template.jinja and generation_config.json, as far
// as the file of a model with this configuration says what is in them. The tokenizer gives the same
// ids; one that is not known is left out. Errors: those of gguf_tokenizer_json() but
// kUnimplemented, and of read_gguf_generation_config(); kInvalidArgument for ids and a template of
// another type than they should have.
Result<GgufCompanions> gguf_companion_files(const GgufCheckpoint& checkpoint,
                                            const ModelConfig& config);

// general.sampling.* and the tokens never drawn, of the folder's generation_config.json; nothing
// where it does not recommend sampling. Errors: those of load_generation_config().
Result<std::vector<GgufMetadata>> gguf_sampling_metadata(const std::string& dir);

}  // namespace kakeya
