// Where texts begin and end in GGUF files, as far as their keys leave it open.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "formats/families.h"
#include "formats/gguf.h"

namespace kakeya {

// The texts of tokens at which a conversation's turn or a text ends, by `general.architecture`.
// Files name one or two of them by id; the others are known by their texts only.
inline std::span<const std::string_view> text_end_tokens(std::string_view architecture) {
  const Family* family = find_gguf_family(architecture);
  return family == nullptr ? std::span<const std::string_view>() : family->text_ends;
}

// True if a beginning-of-sequence token goes in front of a text: `tokenizer.ggml.add_bos_token`.
// Without the key it is true but for byte-level vocabularies ("gpt2"), of which only Llama 3's
// begin texts so.
inline Result<bool> gguf_begins_texts(const GgufFile& file) {
  KAKEYA_ASSIGN_OR_RETURN(const auto model, file.text_or("tokenizer.ggml.model", ""));
  KAKEYA_ASSIGN_OR_RETURN(const auto pre, file.text_or("tokenizer.ggml.pre", ""));
  const bool llama3 = pre == "llama-bpe" || pre == "llama-v3" || pre == "llama3";
  return file.boolean_or("tokenizer.ggml.add_bos_token", model != "gpt2" || llama3);
}

}  // namespace kakeya
