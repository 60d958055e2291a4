// Writes the tokenizer of a GGUF file as a tokenizer.json, declared in text/tokenizer_gguf.h.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/text_ends.h"
#include "text/tokenizer_gguf.h"
#include "text/tokenizer_gguf_tables.h"

namespace kakeya {
namespace {

// The frame around the tokens; {0}: the added ones, {1}: the stages around the model, {2}: the
// post-processor, {3}: the text of the unknown token, {4}: that of affixes, {5}: byte fallback,
// {6}: ignore_merges, {7}: the vocabulary, {8}: the merges.
constexpr std::string_view kFrame = R"({{
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [{0}
  ],{1},
  "post_processor": {2},
  "model": {{"type": "BPE", "dropout": null, "unk_token": {3},
    "continuing_subword_prefix": {4}, "end_of_word_suffix": {4},
    "fuse_unk": {5}, "byte_fallback": {5}, "ignore_merges": {6},
    "vocab": {{{7}
    }},
    "merges": [{8}
    ]
  }}
}}
)";

// The beginning-of-sequence token in front of every text; {0}: its text, {1}: its id.
constexpr std::string_view kBeginning = R"({{"type": "TemplateProcessing",
    "single": [{{"SpecialToken": {{"id": {0}, "type_id": 0}}}}, {{"Sequence": {{"id": "A", "type_id": 0}}}}],
    "pair": [{{"SpecialToken": {{"id": {0}, "type_id": 0}}}}, {{"Sequence": {{"id": "A", "type_id": 0}}}},
      {{"SpecialToken": {{"id": {0}, "type_id": 1}}}}, {{"Sequence": {{"id": "B", "type_id": 1}}}}],
    "special_tokens": {{{0}: {{"id": {0}, "ids": [{1}], "tokens": [{0}]}}}}}})";

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump();
}

// Appends `item` to a list of which each item has a line.
void append_item(std::string& list, std::string_view item) {
  list += fmt::format("{}\n      {}", list.empty() ? "" : ",", item);
}

std::string added_token_json(const AddedToken& token) {
  return fmt::format(
      R"({{"id": {}, "content": {}, "single_word": false, "lstrip": false, "rstrip": false, )"
      R"("normalized": false, "special": {}}})",
      token.id, json_text(token.text), token.special);
}

void append_merge(std::string& list, std::string_view left, std::string_view right) {
  append_item(list, fmt::format("[{}, {}]", json_text(left), json_text(right)));
}

Result<std::string> merges_json(const GgufFile& file, const GgufTokenizer& read) {
  std::string pairs;
  const auto text = [&](TokenId id) { return read.texts[static_cast<std::size_t>(id)]; };
  for (const Merge& merge : read.merges) append_merge(pairs, text(merge.left), text(merge.right));
  if (read.kind->has_scores) return pairs;
  KAKEYA_ASSIGN_OR_RETURN(const auto merges, file.texts("tokenizer.ggml.merges"));
  for (const std::string_view merge : merges) {
    const std::size_t space = cut_of_gguf_merge(merge);
    append_merge(pairs, merge.substr(0, space), merge.substr(space + 1));
  }
  return pairs;
}

// Gemma 4's and Qwen's have their own. With the others readers of a tokenizer.json expect that it
// says what goes in front of a text.
Result<std::string> post_processor_json(const GgufFile& file, const GgufTokenizer& read) {
  constexpr const char* kBos = "tokenizer.ggml.bos_token_id";
  KAKEYA_ASSIGN_OR_RETURN(const bool begins, gguf_begins_texts(file));
  const bool own = read.kind->special_added || read.kind->post_processor != "null";
  if (own || !begins || file.find_value(kBos) == nullptr) {
    return std::string(read.kind->post_processor);
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t bos,
                          file.integer(kBos, {0, std::ssize(read.texts) - 1}));
  const std::string text = json_text(read.texts[static_cast<std::size_t>(bos)]);
  return fmt::format(fmt::runtime(kBeginning), text, bos);
}

}  // namespace

Result<std::string> gguf_tokenizer_json(const GgufFile& file) {
  KAKEYA_ASSIGN_OR_RETURN(const GgufTokenizer read, read_gguf_tokenizer_tables(file));
  const bool byte_level = read.kind->byte_level;
  std::string added;
  std::vector<bool> is_added(read.texts.size());
  for (const AddedToken& token : read.parts.added_tokens) {
    is_added[static_cast<std::size_t>(token.id)] = true;
    append_item(added, added_token_json(token));
  }
  std::string vocabulary;
  for (std::size_t id = 0; id < read.texts.size(); ++id) {
    // Byte-level vocabularies end where their added tokens begin; the others hold them.
    const bool padding = is_gguf_padding(read.texts[id], read.types[id], id);
    if (padding || (byte_level && is_added[id])) continue;
    append_item(vocabulary, fmt::format("{}: {}", json_text(read.texts[id]), id));
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::string merges, merges_json(file, read));
  KAKEYA_ASSIGN_OR_RETURN(const std::string post_processor, post_processor_json(file, read));
  const std::string unknown =
      read.unknown ? json_text(read.texts[static_cast<std::size_t>(*read.unknown)]) : "null";
  return fmt::format(fmt::runtime(kFrame), added, read.kind->pipeline(), post_processor, unknown,
                     byte_level ? R"("")" : "null", !byte_level, read.kind->ignore_merges,
                     vocabulary, merges);
}

}  // namespace kakeya
