// The kinds of tokenizers that GGUF files name, one row each. docs/tokenizer.md lists them.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kakeya {

struct GgufTokenizerKind {
  std::string_view model;     // tokenizer.ggml.model
  std::string_view pre = "";  // tokenizer.ggml.pre; empty: of no importance
  // Values of these names in the tokenizer.json that says the same.
  std::string_view normalizer = "null";
  std::string_view pre_tokenizer = "null";
  std::string_view expression = "";  // in place of pre_tokenizer: cut by it, then as bytes
  std::string_view post_processor = "null";
  std::string_view decoder = "null";
  bool byte_level = false;
  bool has_scores = false;           // and no merges
  bool space_prefix = false;         // a space goes in front of texts
  bool ignore_merges = false;        // a word that is a token stays whole
  bool special_added = false;        // all tokens that are matched before anything else are special
  std::string_view class_name = "";  // tokenizer_class of a tokenizer_config.json

  // Members of a JSON object: "normalizer", "pre_tokenizer" and "decoder".
  std::string pipeline() const;
};

// Those that have one row for each name; kinds with scores are not among them.
std::span<const GgufTokenizerKind> gguf_tokenizer_kinds();

// The row of the names, or nullptr. add_space_prefix matters for vocabularies with scores alone.
const GgufTokenizerKind* find_gguf_tokenizer_kind(std::string_view model,
                                                  std::string_view pre,
                                                  bool add_space_prefix);

// "gemma4, gpt2 or llama"; and the pre-tokenizers of "gpt2", in the same form.
std::string known_gguf_tokenizer_models();
std::string known_gguf_pre_tokenizers();

}  // namespace kakeya
