#include "text/tokenizer_gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "formats/printable.h"
#include "formats/text_ends.h"
#include "text/added_tokens.h"
#include "text/utf8.h"

namespace kakeya {
namespace {

constexpr const char* kModel = "tokenizer.ggml.model";
constexpr const char* kPre = "tokenizer.ggml.pre";
constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kMerges = "tokenizer.ggml.merges";
constexpr const char* kUnknown = "tokenizer.ggml.unknown_token_id";
constexpr std::int64_t kMaxId = Vocabulary::kMaxId;

// The kinds of tokens, by the numbers of the file.
enum TokenType : std::int64_t {
  kNormal = 1,
  kUnknownToken = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// How Qwen's tokenizer.json cuts text; its name in GGUF files is "qwen2".
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The rows of an embedding that stand for no token are written as tokens, too.
bool is_padding(std::string_view text, std::int64_t type, std::size_t id) {
  return type == kUnused && text == fmt::format("[PAD{}]", id);
}

// Where a merge "left right" is cut; a space that belongs to the left side can only be its first
// character.
std::size_t cut_of_merge(std::string_view merge) {
  return merge.find(' ', 1);
}

class Reader {
 public:
  explicit Reader(const GgufFile& file) : file_(file) {}

  Result<TokenizerParts> read() {
    KAKEYA_ASSIGN_OR_RETURN(const auto model, file_.text(kModel));
    KAKEYA_TRY(read_tokens(model == "gemma4"));
    if (model == "gemma4") {
      KAKEYA_TRY(set_up_gemma4());
    } else if (model == "gpt2") {
      KAKEYA_TRY(set_up_qwen2());
    } else {
      return unsupported(kModel, "gemma4 or gpt2", model);
    }
    KAKEYA_TRY(read_merges());
    return std::move(parts_);
  }

 private:
  Unexpected unsupported(std::string_view key,
                         std::string_view expected,
                         std::string_view got) const {
    return error(StatusCode::kUnimplemented, "{}: key {}: expected {}, got \"{}\"", file_.path(),
                 key, expected, printable(got));
  }

  Status read_tokens(bool gemma4) {
    KAKEYA_ASSIGN_OR_RETURN(const auto texts, file_.texts(kTokens));
    KAKEYA_ASSIGN_OR_RETURN(const auto types, file_.integers(kTypes, {kNormal, kByte}));
    if (types.size() != texts.size() || texts.empty() || texts.size() > Vocabulary::kMaxId) {
      return data_loss("{}: expected 1 to {} tokens and as many types, got {} and {}", file_.path(),
                       Vocabulary::kMaxId, texts.size(), types.size());
    }
    for (std::size_t id = 0; id < texts.size(); ++id) {
      if (is_padding(texts[id], types[id], id)) continue;
      if (!is_valid_utf8(texts[id])) {
        return data_loss("{}: token {}: expected UTF-8, got \"{}\"", file_.path(), id,
                         printable(texts[id]));
      }
      KAKEYA_TRY(parts_.vocabulary.add(texts[id], static_cast<std::int64_t>(id)));
      KAKEYA_TRY(add_if_added(texts[id], types[id], static_cast<TokenId>(id), gemma4));
    }
    return {};
  }

  // Tokens that are matched in the text before anything else. Those of Gemma 4 are all special:
  // writers mark some as the user's only so that they are shown, and as such they would be read
  // from texts that must not spell control tokens.
  Status add_if_added(std::string_view text, std::int64_t type, TokenId id, bool gemma4) {
    // Some converters give the ends of texts the type of plain text: the text decides.
    const bool end = type == kNormal && std::ranges::count(text_end_tokens(gemma4), text) > 0;
    const bool control = end || type == kControl || type == kUnknownToken;
    if (!control && type != kUserDefined) return {};
    if (text.empty()) return {};
    if (text.size() > AddedTokenMatcher::kMaxTokenBytes) {
      return data_loss("{}: token {}: expected at most {} bytes of a control token, got {}",
                       file_.path(), id, AddedTokenMatcher::kMaxTokenBytes, text.size());
    }
    parts_.added_tokens.push_back(
        {.text = std::string(text), .id = id, .special = control || gemma4, .normalized = false});
    return {};
  }

  Status set_up_gemma4() {
    parts_.normalizer.add(ReplaceStep{" ", "\u2581"});
    parts_.decoder.replacements.emplace_back("\u2581", " ");
    parts_.decoder.byte_fallback = true;
    options_.byte_fallback = true;
    options_.fuse_unknown = true;
    if (file_.find_value(kUnknown) == nullptr) return {};
    const auto last = static_cast<std::int64_t>(parts_.vocabulary.size()) - 1;
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t unknown, file_.integer(kUnknown, {0, last}));
    options_.unknown = static_cast<TokenId>(unknown);
    return {};
  }

  Status set_up_qwen2() {
    KAKEYA_ASSIGN_OR_RETURN(const auto pre, file_.text(kPre));
    if (pre != "qwen2") return unsupported(kPre, "qwen2", pre);
    parts_.normalizer.add(NfcStep{});
    KAKEYA_ASSIGN_OR_RETURN(auto pattern, Regex::compile(kQwen2Pattern));
    parts_.pre_tokenizer.add({std::move(pattern), SplitBehavior::kIsolated, false});
    parts_.byte_level = true;
    parts_.decoder.byte_level = true;
    return {};
  }

  Status read_merges() {
    KAKEYA_ASSIGN_OR_RETURN(const auto merges, file_.texts(kMerges));
    parts_.bpe = Bpe(parts_.vocabulary, options_, merges.size());
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const std::string_view merge = merges[i];
      const std::size_t space = cut_of_merge(merge);
      const bool split = space != std::string_view::npos;
      if (split && parts_.bpe.add_merge(parts_.vocabulary, merge.substr(0, space),
                                        merge.substr(space + 1))) {
        continue;
      }
      return data_loss("{}: merge {}: expected two tokens that make a third, got \"{}\"",
                       file_.path(), i, printable(merge));
    }
    return {};
  }

  const GgufFile& file_;
  TokenizerParts parts_;
  BpeOptions options_;
};

// The frame around the tokens in a tokenizer.json; {0}: the added ones, {1}: the text of the
// unknown token, {2}: the vocabulary, {3}: the merges.
constexpr std::string_view kGemma4Json = R"({{
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [{0}
  ],
  "normalizer": {{"type": "Replace", "pattern": {{"String": " "}}, "content": "\u2581"}},
  "pre_tokenizer": {{"type": "Split", "pattern": {{"String": " "}},
    "behavior": "MergedWithPrevious", "invert": false}},
  "post_processor": null,
  "decoder": {{"type": "Sequence", "decoders": [
    {{"type": "Replace", "pattern": {{"String": "\u2581"}}, "content": " "}},
    {{"type": "ByteFallback"}}, {{"type": "Fuse"}}]}},
  "model": {{"type": "BPE", "dropout": null, "unk_token": {1},
    "continuing_subword_prefix": null, "end_of_word_suffix": null,
    "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
    "vocab": {{{2}
    }},
    "merges": [{3}
    ]
  }}
}}
)";

// {4}: the expression that cuts text.
constexpr std::string_view kQwen2Json = R"({{
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [{0}
  ],
  "normalizer": {{"type": "NFC"}},
  "pre_tokenizer": {{"type": "Sequence", "pretokenizers": [
    {{"type": "Split", "pattern": {{"Regex": {4}}}, "behavior": "Isolated", "invert": false}},
    {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}}]}},
  "post_processor": {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
    "use_regex": false}},
  "decoder": {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
    "use_regex": false}},
  "model": {{"type": "BPE", "dropout": null, "unk_token": {1},
    "continuing_subword_prefix": "", "end_of_word_suffix": "",
    "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
    "vocab": {{{2}
    }},
    "merges": [{3}
    ]
  }}
}}
)";

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

}  // namespace

bool has_gguf_tokenizer(const GgufFile& file) {
  return file.find_value(kTokens) != nullptr;
}

Result<TokenizerParts> read_gguf_tokenizer(const GgufFile& file) {
  return Reader(file).read();
}

Result<std::string> gguf_tokenizer_json(const GgufFile& file) {
  // Checks the lists that are read here once more.
  KAKEYA_ASSIGN_OR_RETURN(const TokenizerParts parts, read_gguf_tokenizer(file));
  KAKEYA_ASSIGN_OR_RETURN(const auto texts, file.texts(kTokens));
  KAKEYA_ASSIGN_OR_RETURN(const auto types, file.integers(kTypes, {kNormal, kByte}));
  KAKEYA_ASSIGN_OR_RETURN(const auto merges, file.texts(kMerges));
  std::string added;
  std::vector<bool> is_added(texts.size());
  for (const AddedToken& token : parts.added_tokens) {
    is_added[static_cast<std::size_t>(token.id)] = true;
    append_item(added, added_token_json(token));
  }
  std::string vocabulary;
  for (std::size_t id = 0; id < texts.size(); ++id) {
    // Qwen's vocabulary ends where its added tokens begin; Gemma's holds them.
    if (is_padding(texts[id], types[id], id) || (parts.byte_level && is_added[id])) continue;
    append_item(vocabulary, fmt::format("{}: {}", json_text(texts[id]), id));
  }
  std::string pairs;
  for (const std::string_view merge : merges) {
    const std::size_t space = cut_of_merge(merge);
    append_item(pairs, fmt::format("[{}, {}]", json_text(merge.substr(0, space)),
                                   json_text(merge.substr(space + 1))));
  }
  std::string unknown = "null";
  if (!parts.byte_level && file.find_value(kUnknown) != nullptr) {
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t id, file.integer(kUnknown, {0, kMaxId}));
    unknown = json_text(texts[static_cast<std::size_t>(id)]);
  }
  return fmt::format(fmt::runtime(parts.byte_level ? kQwen2Json : kGemma4Json), added, unknown,
                     vocabulary, pairs, json_text(kQwen2Pattern));
}

}  // namespace kakeya
