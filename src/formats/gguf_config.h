// The configurations in the metadata and tensors of a GGUF file: the same ones as config.json and
// generation_config.json give, checked by the same code. docs/formats/gguf.md lists the keys.
#pragma once

#include <string>

#include "formats/drafter_config.h"
#include "formats/gguf_checkpoint.h"
#include "formats/gguf_names.h"
#include "formats/model_config.h"
#include "kakeya/status.h"

namespace kakeya {

// Errors: kUnimplemented for an architecture without a name in formats/gguf_names.h.
Result<GgufArchitecture> gguf_architecture(const GgufCheckpoint& checkpoint);

// The config.json that says the same of the network, of a model or of a drafter, as the functions
// below parse it. Errors: those of them, but for what parsing finds.
Result<std::string> gguf_config_json(const GgufCheckpoint& checkpoint);

// A number of such a file as JSON has it: 0.95, not the double next to 0.95 in f32.
double json_number(float value);

// Reads the configuration of a model. Sizes of the vocabulary, which values are keys, whether the
// head is tied and which pairs rotate follow from the tensors. Errors: kInvalidArgument or
// kNotFound for a key that is missing or impossible, and for a drafter; kUnimplemented for what the
// network does not compute; as parse_model_config(). Each names the file.
Result<ModelConfig> read_gguf_model_config(const GgufCheckpoint& checkpoint);

// Reads the configuration of a drafter. Errors: as above; as parse_drafter_config().
Result<DrafterConfig> read_gguf_drafter_config(const GgufCheckpoint& checkpoint);

// Reads the publisher's recommendations for sampling, if the file has them. Errors:
// kInvalidArgument for a value out of range.
Result<GenerationConfig> read_gguf_generation_config(const GgufCheckpoint& checkpoint);

}  // namespace kakeya
