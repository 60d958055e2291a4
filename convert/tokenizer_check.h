// Checks that a tokenizer that was written in another form still reads and writes texts alike.
#pragma once

#include <span>
#include <string>

#include "formats/gguf_write.h"
#include "kakeya/status.h"

namespace kakeya {

// A GGUF file names its tokenizer ("gemma4", "gpt2" with "qwen2") and does not describe it: how
// texts are normalised, cut and put together again is what that name stands for. This compares
// `path`, a tokenizer.json, with what a reader makes of `metadata`: how text is cut, the text of
// every token, and the ids of a varied page and of random tokens' texts.
// Errors: kUnimplemented for a tokenizer that a GGUF file cannot say, with the first difference;
// kUnavailable if no temporary file can be written; those of reading either form.
Status check_gguf_tokenizer(const std::string& path, std::span<const GgufMetadata> metadata);

}  // namespace kakeya
