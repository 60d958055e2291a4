// Reads the tokenizer that a GGUF file carries in its metadata into the parts of a tokenizer, so
// that it gives the ids of the tokenizer.json it was made from, and back into such a file.
// docs/tokenizer.md says how.
#pragma once

#include <string>

#include "formats/gguf.h"
#include "kakeya/status.h"
#include "text/tokenizer_json.h"

namespace kakeya {

// True if the file has a tokenizer.
bool has_gguf_tokenizer(const GgufFile& file);

// Errors: kNotFound or kInvalidArgument for a key that is missing or of another type; kDataLoss for
// tokens, scores or merges that do not fit together; kUnimplemented for a tokenizer that is not in
// the table of tokenizer_gguf_kinds.cc. Each names the file.
Result<TokenizerParts> read_gguf_tokenizer(const GgufFile& file);

// A tokenizer.json that gives the same ids, in the form of the published ones. Scores become merges
// in the order of their ranks: only two merges of equal rank that share a token, of which the
// leftmost goes first here, may go the other way round there.
// Errors: as above.
Result<std::string> gguf_tokenizer_json(const GgufFile& file);

}  // namespace kakeya
