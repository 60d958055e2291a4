#include "text/tokenizer_gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "formats/printable.h"
#include "formats/text_ends.h"
#include "text/added_tokens.h"
#include "text/score_merges.h"
#include "text/tokenizer_gguf_tables.h"
#include "text/utf8.h"

namespace kakeya {
namespace {

constexpr const char* kModel = "tokenizer.ggml.model";
constexpr const char* kPre = "tokenizer.ggml.pre";
constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kMerges = "tokenizer.ggml.merges";
constexpr const char* kScores = "tokenizer.ggml.scores";
constexpr const char* kUnknown = "tokenizer.ggml.unknown_token_id";
constexpr const char* kPrefix = "tokenizer.ggml.add_space_prefix";
constexpr const char* kTrims = "tokenizer.ggml.remove_extra_whitespaces";
constexpr const char* kCharacters = "tokenizer.ggml.precompiled_charsmap";

// The kinds of tokens, by the numbers of the file.
enum TokenType : std::int64_t {
  kNormal = 1,
  kUnknownToken = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

Unexpected unknown_name(const GgufFile& file,
                        std::string_view key,
                        std::string_view expected,
                        std::string_view got) {
  return error(StatusCode::kUnimplemented, "{}: key {}: expected {}, got \"{}\"", file.path(), key,
               expected, printable(got));
}

class GgufTokenizerReader {
 public:
  explicit GgufTokenizerReader(const GgufFile& file) : file_(file) {}

  Result<GgufTokenizer> read() {
    KAKEYA_ASSIGN_OR_RETURN(read_.kind, gguf_tokenizer_kind(file_));
    KAKEYA_TRY(reject_other_rules());
    KAKEYA_TRY(read_tokens());
    KAKEYA_TRY(read_unknown());
    // Adds the stages around the model.
    auto stages = parse_tokenizer_pipeline(fmt::format("{{{}}}", read_.kind->pipeline()), parts());
    if (!stages) return Unexpected(stages.error().with_context(file_.path()));
    parts().ignore_merges = read_.kind->ignore_merges;
    KAKEYA_TRY(read_.kind->has_scores ? read_scores() : read_merges());
    return std::move(read_);
  }

 private:
  TokenizerParts& parts() { return read_.parts; }

  // Rules of SentencePiece that change ids and that no supported file has.
  Status reject_other_rules() const {
    if (!read_.kind->has_scores) return {};
    KAKEYA_ASSIGN_OR_RETURN(const bool trims, file_.boolean_or(kTrims, false));
    if (!trims && file_.find_value(kCharacters) == nullptr) return {};
    return error(StatusCode::kUnimplemented, "{}: key {}: what it stands for is not supported",
                 file_.path(), trims ? kTrims : kCharacters);
  }

  Status read_tokens() {
    KAKEYA_ASSIGN_OR_RETURN(read_.texts, file_.texts(kTokens));
    KAKEYA_ASSIGN_OR_RETURN(read_.types, file_.integers(kTypes, {kNormal, kByte}));
    KAKEYA_ASSIGN_OR_RETURN(const auto architecture, file_.text_or("general.architecture", ""));
    const auto ends = text_end_tokens(architecture);
    const auto& texts = read_.texts;
    const auto& types = read_.types;
    if (types.size() != texts.size() || texts.empty() || texts.size() > Vocabulary::kMaxId) {
      return data_loss("{}: expected 1 to {} tokens and as many types, got {} and {}", file_.path(),
                       Vocabulary::kMaxId, texts.size(), types.size());
    }
    for (std::size_t id = 0; id < texts.size(); ++id) {
      if (is_gguf_padding(texts[id], types[id], id)) continue;
      if (!is_valid_utf8(texts[id])) {
        return data_loss("{}: token {}: expected UTF-8, got \"{}\"", file_.path(), id,
                         printable(texts[id]));
      }
      KAKEYA_TRY(parts().vocabulary.add(texts[id], static_cast<std::int64_t>(id)));
      // Some converters give the ends of texts the type of plain text: the text decides.
      const bool end = types[id] == kNormal && std::ranges::count(ends, texts[id]) > 0;
      KAKEYA_TRY(add_if_added(texts[id], end ? kControl : types[id], static_cast<TokenId>(id)));
    }
    return {};
  }

  // Tokens that are matched in the text before anything else. Those of Gemma 4 are all special:
  // writers mark some as the user's only so that they are shown, and as such they would be read
  // from texts that must not spell control tokens.
  Status add_if_added(std::string_view text, std::int64_t type, TokenId id) {
    const bool control = type == kControl || type == kUnknownToken;
    if (!control && type != kUserDefined) return {};
    if (text.empty()) return {};
    if (text.size() > AddedTokenMatcher::kMaxTokenBytes) {
      return data_loss("{}: token {}: expected at most {} bytes of a control token, got {}",
                       file_.path(), id, AddedTokenMatcher::kMaxTokenBytes, text.size());
    }
    parts().added_tokens.push_back({.text = std::string(text),
                                    .id = id,
                                    .special = control || read_.kind->special_added,
                                    .normalized = false});
    return {};
  }

  Status read_unknown() {
    if (read_.kind->byte_level || file_.find_value(kUnknown) == nullptr) return {};
    const auto last = static_cast<std::int64_t>(parts().vocabulary.size()) - 1;
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t unknown, file_.integer(kUnknown, {0, last}));
    read_.unknown = static_cast<TokenId>(unknown);
    return {};
  }

  BpeOptions options() const {
    const bool by_bytes = !read_.kind->byte_level;
    return {.byte_fallback = by_bytes, .fuse_unknown = by_bytes, .unknown = read_.unknown};
  }

  Status read_merges() {
    KAKEYA_ASSIGN_OR_RETURN(const auto merges, file_.texts(kMerges));
    parts().bpe = Bpe(parts().vocabulary, options(), merges.size());
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const std::string_view merge = merges[i];
      const std::size_t space = cut_of_gguf_merge(merge);
      const bool split = space != std::string_view::npos;
      if (split && parts().bpe.add_merge(parts().vocabulary, merge.substr(0, space),
                                         merge.substr(space + 1))) {
        continue;
      }
      return data_loss("{}: merge {}: expected two tokens that make a third, got \"{}\"",
                       file_.path(), i, printable(merge));
    }
    return {};
  }

  Status read_scores() {
    constexpr double kMost = std::numeric_limits<float>::max();
    KAKEYA_ASSIGN_OR_RETURN(std::vector<double> scores, file_.numbers(kScores, {-kMost, kMost}));
    if (scores.size() != read_.texts.size()) {
      return data_loss("{}: key {}: expected {} scores, one a token, got {}", file_.path(), kScores,
                       read_.texts.size(), scores.size());
    }
    // Rows of padding at the end are no part of the vocabulary.
    scores.resize(parts().vocabulary.size());
    std::vector<bool> candidates(scores.size());
    for (std::size_t id = 0; id < candidates.size(); ++id) {
      candidates[id] = read_.types[id] == kNormal || read_.types[id] == kUserDefined;
    }
    auto merges = merges_of_scores(parts().vocabulary, candidates, scores);
    if (!merges) return Unexpected(merges.error().with_context(file_.path()));
    read_.merges = std::move(*merges);
    parts().bpe = Bpe(parts().vocabulary, options(), read_.merges.size(), &candidates);
    for (const Merge& merge : read_.merges) parts().bpe.add_merge(merge);
    return {};
  }

  const GgufFile& file_;
  GgufTokenizer read_;
};

}  // namespace

bool is_gguf_padding(std::string_view text, std::int64_t type, std::size_t id) {
  return type == kUnused && text == fmt::format("[PAD{}]", id);
}

std::size_t cut_of_gguf_merge(std::string_view merge) {
  return merge.find(' ', 1);
}

Result<const GgufTokenizerKind*> gguf_tokenizer_kind(const GgufFile& file) {
  KAKEYA_ASSIGN_OR_RETURN(const auto model, file.text(kModel));
  KAKEYA_ASSIGN_OR_RETURN(const auto pre, file.text_or(kPre, ""));
  KAKEYA_ASSIGN_OR_RETURN(const bool prefix, file.boolean_or(kPrefix, true));
  const GgufTokenizerKind* kind = find_gguf_tokenizer_kind(model, pre, prefix);
  if (kind != nullptr) return kind;
  if (model != "gpt2") return unknown_name(file, kModel, known_gguf_tokenizer_models(), model);
  if (file.find_value(kPre) != nullptr) {
    return unknown_name(file, kPre, known_gguf_pre_tokenizers(), pre);
  }
  return error(StatusCode::kNotFound, "{}: key {}: expected {}, got none", file.path(), kPre,
               known_gguf_pre_tokenizers());
}

Result<GgufTokenizer> read_gguf_tokenizer_tables(const GgufFile& file) {
  return GgufTokenizerReader(file).read();
}

bool has_gguf_tokenizer(const GgufFile& file) {
  return file.find_value(kTokens) != nullptr;
}

Result<TokenizerParts> read_gguf_tokenizer(const GgufFile& file) {
  KAKEYA_ASSIGN_OR_RETURN(GgufTokenizer read, read_gguf_tokenizer_tables(file));
  return std::move(read.parts);
}

}  // namespace kakeya
