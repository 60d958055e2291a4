#include "text/tokenizer_json.h"

#include <simdjson.h>

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "formats/file_kind.h"
#include "formats/printable.h"
#include "text/added_tokens.h"
#include "text/tokenizer_json_fields.h"

namespace kakeya {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;
using tokenizer_json::as;
using tokenizer_json::find;
using tokenizer_json::get_or;
using tokenizer_json::kMaxDepth;
using tokenizer_json::require;
using tokenizer_json::unsupported;

constexpr std::size_t kMaxJsonBytes = std::size_t{1} << 30;

Status check_unsupported_model_options(object model) {
  KAKEYA_ASSIGN_OR_RETURN(const auto type, get_or<std::string_view>(model, "type", "BPE"));
  if (type != "BPE") return unsupported("model", type);
  KAKEYA_ASSIGN_OR_RETURN(const double dropout, get_or(model, "dropout", 0.0));
  if (dropout != 0.0) return unsupported("model option", "dropout");
  for (const std::string_view affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    KAKEYA_ASSIGN_OR_RETURN(const auto text, get_or<std::string_view>(model, affix, ""));
    if (!text.empty()) return unsupported("model option", affix);
  }
  return {};
}

Status read_vocabulary(object model, Vocabulary& vocabulary) {
  KAKEYA_ASSIGN_OR_RETURN(const auto vocab, require<object>(model, "vocab"));
  for (const auto field : vocab) {
    KAKEYA_ASSIGN_OR_RETURN(const auto id, as<std::int64_t>(field.value, "vocab id"));
    KAKEYA_TRY(vocabulary.add(field.key, id));
  }
  if (vocabulary.size() == 0) return data_loss("[tokenizer] 'vocab' is empty");
  return {};
}

// A merge is ["left", "right"] or "left right".
Result<std::pair<std::string_view, std::string_view>> read_merge(element merge) {
  std::string_view line;
  if (merge.get(line) == simdjson::SUCCESS) {
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      return data_loss("[tokenizer] merge '{}' does not consist of two tokens", printable(line));
    }
    return std::pair(line.substr(0, space), line.substr(space + 1));
  }
  array pair;
  std::string_view left;
  std::string_view right;
  if (merge.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
      pair.at(0).get(left) != simdjson::SUCCESS || pair.at(1).get(right) != simdjson::SUCCESS) {
    return data_loss("[tokenizer] a merge is neither a string nor a pair of strings");
  }
  return std::pair(left, right);
}

Status read_model(object root, TokenizerParts& parts) {
  KAKEYA_ASSIGN_OR_RETURN(const auto model, require<object>(root, "model"));
  KAKEYA_TRY(check_unsupported_model_options(model));
  KAKEYA_TRY(read_vocabulary(model, parts.vocabulary));

  BpeOptions options;
  KAKEYA_ASSIGN_OR_RETURN(options.byte_fallback, get_or(model, "byte_fallback", false));
  KAKEYA_ASSIGN_OR_RETURN(options.fuse_unknown, get_or(model, "fuse_unk", false));
  KAKEYA_ASSIGN_OR_RETURN(parts.ignore_merges, get_or(model, "ignore_merges", false));
  if (const auto unknown = find(model, "unk_token")) {
    KAKEYA_ASSIGN_OR_RETURN(const auto text, as<std::string_view>(*unknown, "unk_token"));
    options.unknown = parts.vocabulary.find(text);
    if (!options.unknown)
      return data_loss("[tokenizer] unk_token '{}' is no token", printable(text));
  }
  KAKEYA_ASSIGN_OR_RETURN(const auto merges, require<array>(model, "merges"));
  // simdjson's size() saturates at 2^24 - 1, so the elements are counted.
  std::size_t num_merges = 0;
  for (const element merge : merges) {
    (void)merge;
    ++num_merges;
  }
  parts.bpe = Bpe(parts.vocabulary, options, num_merges);
  for (const element merge : merges) {
    KAKEYA_ASSIGN_OR_RETURN(const auto pair, read_merge(merge));
    KAKEYA_TRY(parts.bpe.add_merge(parts.vocabulary, pair.first, pair.second));
  }
  return {};
}

Result<AddedToken> read_added_token(object token) {
  AddedToken added;
  KAKEYA_ASSIGN_OR_RETURN(const auto text, require<std::string_view>(token, "content"));
  KAKEYA_ASSIGN_OR_RETURN(const auto id, require<std::int64_t>(token, "id"));
  KAKEYA_ASSIGN_OR_RETURN(added.special, get_or(token, "special", false));
  KAKEYA_ASSIGN_OR_RETURN(added.normalized, get_or(token, "normalized", !added.special));
  for (const std::string_view option : {"single_word", "lstrip", "rstrip"}) {
    KAKEYA_ASSIGN_OR_RETURN(const bool set, get_or(token, option, false));
    if (set) return unsupported("added token option", option);
  }
  if (text.size() > AddedTokenMatcher::kMaxTokenBytes) {
    return data_loss("[tokenizer] added token {} has {} bytes, more than {}", id, text.size(),
                     AddedTokenMatcher::kMaxTokenBytes);
  }
  if (id < 0 || id > Vocabulary::kMaxId) {
    return data_loss("[tokenizer] added token '{}' has the id {} out of range", printable(text),
                     id);
  }
  added.text = text;
  added.id = static_cast<TokenId>(id);
  return added;
}

Status read_added_tokens(object root, TokenizerParts& parts) {
  const auto value = find(root, "added_tokens");
  if (!value) return {};
  KAKEYA_ASSIGN_OR_RETURN(const auto tokens, as<array>(*value, "added_tokens"));
  for (const element item : tokens) {
    KAKEYA_ASSIGN_OR_RETURN(const auto token, as<object>(item, "added_tokens"));
    KAKEYA_ASSIGN_OR_RETURN(auto added, read_added_token(token));
    if (added.text.empty()) continue;
    KAKEYA_TRY(parts.vocabulary.add(added.text, added.id));
    parts.added_tokens.push_back(std::move(added));
  }
  return {};
}

}  // namespace

Result<TokenizerParts> parse_tokenizer_json(std::string_view json) {
  if (json.size() > kMaxJsonBytes) {
    return data_loss("[tokenizer] tokenizer.json has {} bytes, more than {}", json.size(),
                     kMaxJsonBytes);
  }
  KAKEYA_TRY(check_no_lfs_pointer(std::as_bytes(std::span(json))));
  simdjson::dom::parser parser;
  if (parser.allocate(json.size() + 1, kMaxDepth) != simdjson::SUCCESS) {
    return error(StatusCode::kResourceExhausted, "[tokenizer] out of memory");
  }
  object root;
  const auto code = parser.parse(json.data(), json.size()).get(root);
  if (code != simdjson::SUCCESS) {
    return data_loss("[tokenizer] not a JSON object: {}", simdjson::error_message(code));
  }
  TokenizerParts parts;
  KAKEYA_TRY(read_model(root, parts));
  KAKEYA_TRY(read_added_tokens(root, parts));
  KAKEYA_TRY(tokenizer_json::read_pipeline(root, parts));
  return parts;
}

}  // namespace kakeya
