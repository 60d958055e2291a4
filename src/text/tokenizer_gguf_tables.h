// The tokenizer of a GGUF file with the tables that it was read from, shared by the sources that
// read it and that write it as a tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "text/bpe.h"
#include "text/tokenizer_gguf_kinds.h"
#include "text/tokenizer_json.h"

namespace kakeya {

struct GgufTokenizer {
  const GgufTokenizerKind* kind = nullptr;
  std::vector<std::string_view> texts;  // by id; views of the file
  std::vector<std::int64_t> types;      // by id, as many
  std::vector<Merge> merges;            // in order, of a kind with scores
  std::optional<TokenId> unknown;
  TokenizerParts parts;
};

// The kind that the file names. Errors: kNotFound without a name, kUnimplemented for another.
Result<const GgufTokenizerKind*> gguf_tokenizer_kind(const GgufFile& file);

// Errors: as read_gguf_tokenizer().
Result<GgufTokenizer> read_gguf_tokenizer_tables(const GgufFile& file);

// The rows of an embedding that stand for no token are written as tokens, too.
bool is_gguf_padding(std::string_view text, std::int64_t type, std::size_t id);

// Where a merge "left right" is cut; a space that belongs to the left side can only be its first
// character.
std::size_t cut_of_gguf_merge(std::string_view merge);

}  // namespace kakeya
