// Reads a tokenizer.json into the parts of a tokenizer and checks everything in it. Does no
// encoding or decoding itself.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "kakeya/status.h"
#include "text/bpe.h"
#include "text/detokenizer.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/vocabulary.h"

namespace kakeya {

struct AddedToken {
  std::string text;
  TokenId id;
  bool special;
  bool normalized;  // matched in the normalised text, in its own normalised form
};

// Spaces are written as `replacement`, which is put in front, too, of what does not begin with it.
struct Metaspace {
  enum class Prefix { kNone, kFirst, kEach };  // first: of the text alone
  std::string replacement;
  Prefix prefix = Prefix::kEach;
};

struct TokenizerParts {
  Vocabulary vocabulary;  // with the added tokens
  std::vector<AddedToken> added_tokens;
  Normalizer normalizer;
  std::optional<Metaspace> metaspace;  // between the two
  PreTokenizer pre_tokenizer;
  bool byte_level = false;     // words are encoded in ByteCharacters
  bool ignore_merges = false;  // a word that is a token stays whole
  Bpe bpe;
  DecoderOptions decoder;
  // True if its post-processor puts a special token in front of every text; nothing if it has none
  // that could.
  std::optional<bool> special_token_in_front;
};

// Errors: as Tokenizer::parse.
Result<TokenizerParts> parse_tokenizer_json(std::string_view json);

// Reads the stages around the model alone: an object with "normalizer", "pre_tokenizer",
// "post_processor" and "decoder". Errors: as above.
Status parse_tokenizer_pipeline(std::string_view json, TokenizerParts& parts);

}  // namespace kakeya
