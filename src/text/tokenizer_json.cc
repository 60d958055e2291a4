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

namespace kakeya {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::size_t kMaxJsonBytes = std::size_t{1} << 30;
constexpr std::size_t kMaxJsonDepth = 64;
constexpr std::size_t kMaxComponents = 64;  // steps of one pipeline stage

// The value of `key`; nothing if it is absent or null.
std::optional<element> find(object parent, std::string_view key) {
  element value;
  if (parent[key].get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

template <typename T>
Result<T> as(element value, std::string_view what) {
  T result;
  if (value.get(result) == simdjson::SUCCESS) return result;
  return data_loss("[tokenizer] '{}' has the wrong JSON type", what);
}

template <typename T>
Result<T> require(object parent, std::string_view key) {
  const auto value = find(parent, key);
  if (!value) return data_loss("[tokenizer] '{}' is missing", key);
  return as<T>(*value, key);
}

template <typename T>
Result<T> get_or(object parent, std::string_view key, T fallback) {
  const auto value = find(parent, key);
  if (!value) return fallback;
  return as<T>(*value, key);
}

Unexpected unsupported(std::string_view stage, std::string_view what) {
  return error(StatusCode::kUnimplemented, "[tokenizer] {} '{}' is not supported", stage,
               printable(what));
}

// The steps of a pipeline stage: the component itself, or what its Sequence lists under list_key,
// nested sequences opened.
Status flatten(object component,
               std::string_view list_key,
               std::size_t depth,
               std::vector<object>& steps) {
  KAKEYA_ASSIGN_OR_RETURN(const auto type, require<std::string_view>(component, "type"));
  if (type != "Sequence") {
    if (steps.size() >= kMaxComponents) return data_loss("[tokenizer] '{}' is too long", list_key);
    steps.push_back(component);
    return {};
  }
  if (depth > kMaxJsonDepth) return data_loss("[tokenizer] '{}' is nested too deeply", list_key);
  KAKEYA_ASSIGN_OR_RETURN(const auto list, require<array>(component, list_key));
  for (const element item : list) {
    KAKEYA_ASSIGN_OR_RETURN(const auto inner, as<object>(item, list_key));
    KAKEYA_TRY(flatten(inner, list_key, depth + 1, steps));
  }
  return {};
}

Result<std::vector<object>> stage_steps(object root,
                                        std::string_view stage,
                                        std::string_view list_key) {
  std::vector<object> steps;
  const auto value = find(root, stage);
  if (!value) return steps;
  KAKEYA_ASSIGN_OR_RETURN(const auto component, as<object>(*value, stage));
  KAKEYA_TRY(flatten(component, list_key, 0, steps));
  return steps;
}

// The literal text of a pattern {"String": text}; kUnimplemented for an expression.
Result<std::string> literal_pattern(object step, std::string_view stage) {
  KAKEYA_ASSIGN_OR_RETURN(const auto pattern, require<object>(step, "pattern"));
  if (find(pattern, "Regex")) return unsupported(stage, "Replace by a regular expression");
  KAKEYA_ASSIGN_OR_RETURN(const auto text, require<std::string_view>(pattern, "String"));
  return std::string(text);
}

Status read_normalizer(object root, TokenizerParts& parts) {
  KAKEYA_ASSIGN_OR_RETURN(const auto steps, stage_steps(root, "normalizer", "normalizers"));
  for (const object step : steps) {
    KAKEYA_ASSIGN_OR_RETURN(const auto type, require<std::string_view>(step, "type"));
    if (type == "NFC") {
      parts.normalizer.add(NfcStep{});
    } else if (type == "Replace") {
      KAKEYA_ASSIGN_OR_RETURN(auto from, literal_pattern(step, "normalizer"));
      KAKEYA_ASSIGN_OR_RETURN(const auto to, require<std::string_view>(step, "content"));
      parts.normalizer.add(ReplaceStep{std::move(from), std::string(to)});
    } else {
      return unsupported("normalizer", type);
    }
  }
  return {};
}

Result<SplitBehavior> parse_behavior(std::string_view name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return unsupported("split behavior", name);
}

Result<Splitter> read_split(object step) {
  Splitter splitter;
  KAKEYA_ASSIGN_OR_RETURN(const auto pattern, require<object>(step, "pattern"));
  if (const auto regex = find(pattern, "Regex")) {
    KAKEYA_ASSIGN_OR_RETURN(const auto text, as<std::string_view>(*regex, "Regex"));
    KAKEYA_ASSIGN_OR_RETURN(splitter.pattern, Regex::compile(text));
  } else {
    KAKEYA_ASSIGN_OR_RETURN(const auto text, require<std::string_view>(pattern, "String"));
    splitter.pattern = std::string(text);
  }
  KAKEYA_ASSIGN_OR_RETURN(const auto behavior, require<std::string_view>(step, "behavior"));
  KAKEYA_ASSIGN_OR_RETURN(splitter.behavior, parse_behavior(behavior));
  KAKEYA_ASSIGN_OR_RETURN(splitter.invert, get_or(step, "invert", false));
  return splitter;
}

Status read_byte_level(object step, TokenizerParts& parts) {
  KAKEYA_ASSIGN_OR_RETURN(const bool add_prefix_space, get_or(step, "add_prefix_space", true));
  KAKEYA_ASSIGN_OR_RETURN(const bool use_regex, get_or(step, "use_regex", true));
  if (add_prefix_space) return unsupported("pre_tokenizer", "ByteLevel with add_prefix_space");
  if (use_regex) {
    KAKEYA_ASSIGN_OR_RETURN(auto regex, Regex::compile(kByteLevelPattern));
    parts.pre_tokenizer.add({std::move(regex), SplitBehavior::kIsolated, false});
  }
  parts.byte_level = true;
  return {};
}

Status read_pre_tokenizer(object root, TokenizerParts& parts) {
  KAKEYA_ASSIGN_OR_RETURN(const auto steps, stage_steps(root, "pre_tokenizer", "pretokenizers"));
  for (const object step : steps) {
    KAKEYA_ASSIGN_OR_RETURN(const auto type, require<std::string_view>(step, "type"));
    if (parts.byte_level)
      return unsupported("pre_tokenizer", "Sequence with steps after ByteLevel");
    if (type == "Split") {
      KAKEYA_ASSIGN_OR_RETURN(auto splitter, read_split(step));
      parts.pre_tokenizer.add(std::move(splitter));
    } else if (type == "ByteLevel") {
      KAKEYA_TRY(read_byte_level(step, parts));
    } else {
      return unsupported("pre_tokenizer", type);
    }
  }
  return {};
}

// A post-processor only adds tokens around the sequence, which encode never does; so the known
// ones are accepted and have no effect.
Status check_post_processor(object root) {
  KAKEYA_ASSIGN_OR_RETURN(const auto steps, stage_steps(root, "post_processor", "processors"));
  for (const object step : steps) {
    KAKEYA_ASSIGN_OR_RETURN(const auto type, require<std::string_view>(step, "type"));
    if (type != "ByteLevel" && type != "TemplateProcessing") {
      return unsupported("post_processor", type);
    }
  }
  return {};
}

Status read_decoder(object root, DecoderOptions& decoder) {
  KAKEYA_ASSIGN_OR_RETURN(const auto steps, stage_steps(root, "decoder", "decoders"));
  if (steps.empty()) return unsupported("decoder", "null");
  bool fused = false;
  for (const object step : steps) {
    KAKEYA_ASSIGN_OR_RETURN(const auto type, require<std::string_view>(step, "type"));
    // Each step works on single tokens, and byte runs and joining come last: then one table of
    // decoded tokens does for all texts.
    if (fused || (decoder.byte_fallback && type != "Fuse")) {
      return unsupported("decoder", "Sequence in another order than Replace, ByteFallback, Fuse");
    }
    if (type == "ByteLevel" && steps.size() == 1) {
      decoder.byte_level = true;
    } else if (type == "Replace") {
      KAKEYA_ASSIGN_OR_RETURN(auto from, literal_pattern(step, "decoder"));
      KAKEYA_ASSIGN_OR_RETURN(const auto to, require<std::string_view>(step, "content"));
      decoder.replacements.emplace_back(std::move(from), std::string(to));
    } else if (type == "ByteFallback") {
      decoder.byte_fallback = true;
    } else if (type == "Fuse") {
      fused = true;
    } else {
      return unsupported("decoder", type);
    }
  }
  return {};
}

// A TemplateProcessing, alone or in a Sequence, lists what a single text becomes.
std::optional<bool> special_token_in_front(simdjson::simdjson_result<element> processor) {
  element first;
  if (processor["single"].at(0).get(first) == simdjson::SUCCESS) {
    return first["SpecialToken"].error() == simdjson::SUCCESS;
  }
  array processors;
  if (processor["processors"].get(processors) != simdjson::SUCCESS) return std::nullopt;
  for (const element one : processors) {
    if (one["single"].at(0).get(first) != simdjson::SUCCESS) continue;
    return first["SpecialToken"].error() == simdjson::SUCCESS;
  }
  return std::nullopt;
}

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
  if (parser.allocate(json.size() + 1, kMaxJsonDepth) != simdjson::SUCCESS) {
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
  KAKEYA_TRY(read_normalizer(root, parts));
  KAKEYA_TRY(read_pre_tokenizer(root, parts));
  KAKEYA_TRY(check_post_processor(root));
  parts.special_token_in_front = special_token_in_front(root["post_processor"]);
  KAKEYA_TRY(read_decoder(root, parts.decoder));
  if (parts.byte_level != parts.decoder.byte_level) {
    return unsupported("combination", "ByteLevel in only one of pre_tokenizer and decoder");
  }
  return parts;
}

}  // namespace kakeya
