// Notes on tokenizer_config.json and the chat template of a folder, beside what ModelText does with
// them: where answers end, and what a user should know.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kakeya/status.h"
#include "kakeya/tokenizer.h"

namespace kakeya {

struct TextNotes {
  // The token that tokenizer_config.json names as eos_token; no value where it names none, or none
  // of the tokenizer.
  std::optional<TokenId> eos_id;
  // A line each.
  std::vector<std::string> lines;
};

// Reads those of a folder whose ModelText has loaded; a GGUF file has none. `tokenizer` may be
// null. Errors: kNotFound for a file that went away.
Result<TextNotes> read_text_notes(const std::string& path, const Tokenizer* tokenizer);

}  // namespace kakeya
