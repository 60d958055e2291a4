// The stages of a tokenizer.json around its model, declared in text/tokenizer_json_fields.h.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer_json_fields.h"
#include "text/utf8.h"

namespace kakeya::tokenizer_json {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::size_t kMaxComponents = 64;  // steps of one pipeline stage

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
  if (depth > kMaxDepth) return data_loss("[tokenizer] '{}' is nested too deeply", list_key);
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
    } else if (type == "Prepend") {
      KAKEYA_ASSIGN_OR_RETURN(const auto text, require<std::string_view>(step, "prepend"));
      parts.normalizer.add(PrependStep{std::string(text)});
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

// Digits: each alone, or each run of them.
Result<Splitter> read_digits(object step) {
  KAKEYA_ASSIGN_OR_RETURN(const bool individual, get_or(step, "individual_digits", false));
  KAKEYA_ASSIGN_OR_RETURN(auto pattern, Regex::compile(R"(\p{N})"));
  return Splitter{std::move(pattern),
                  individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false};
}

// Metaspace: spaces become another character, which is also put in front.
Status read_metaspace(object step, TokenizerParts& parts) {
  KAKEYA_ASSIGN_OR_RETURN(const auto replacement, require<std::string_view>(step, "replacement"));
  const bool one = !replacement.empty() && read_utf8(replacement, 0).size == replacement.size();
  if (!one) return unsupported("pre_tokenizer", "Metaspace without one character as replacement");
  KAKEYA_ASSIGN_OR_RETURN(const bool always, get_or(step, "add_prefix_space", true));
  KAKEYA_ASSIGN_OR_RETURN(const auto scheme, get_or<std::string_view>(step, "prepend_scheme",
                                                                      always ? "always" : "never"));
  Metaspace metaspace{.replacement = std::string(replacement)};
  if (scheme == "never") {
    metaspace.prefix = Metaspace::Prefix::kNone;
  } else if (scheme == "first") {
    metaspace.prefix = Metaspace::Prefix::kFirst;
  } else if (scheme != "always") {
    return unsupported("prepend_scheme", scheme);
  }
  parts.metaspace = std::move(metaspace);
  KAKEYA_ASSIGN_OR_RETURN(const bool split, get_or(step, "split", true));
  if (!split) return {};
  parts.pre_tokenizer.add({std::string(replacement), SplitBehavior::kMergedWithNext, false});
  return {};
}

Status read_pre_tokenizer(object root, TokenizerParts& parts) {
  KAKEYA_ASSIGN_OR_RETURN(const auto steps, stage_steps(root, "pre_tokenizer", "pretokenizers"));
  for (const object step : steps) {
    KAKEYA_ASSIGN_OR_RETURN(const auto type, require<std::string_view>(step, "type"));
    if (parts.byte_level)
      return unsupported("pre_tokenizer", "Sequence with steps after ByteLevel");
    if (type == "Metaspace" && steps.size() > 1)
      return unsupported("pre_tokenizer", "Sequence with Metaspace");
    if (type == "Split") {
      KAKEYA_ASSIGN_OR_RETURN(auto splitter, read_split(step));
      parts.pre_tokenizer.add(std::move(splitter));
    } else if (type == "ByteLevel") {
      KAKEYA_TRY(read_byte_level(step, parts));
    } else if (type == "Digits") {
      KAKEYA_ASSIGN_OR_RETURN(auto splitter, read_digits(step));
      parts.pre_tokenizer.add(std::move(splitter));
    } else if (type == "Metaspace") {
      KAKEYA_TRY(read_metaspace(step, parts));
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

// Strip, of a whole text: as many spaces at its beginning as it says.
Status read_strip(object step, DecoderOptions& decoder) {
  constexpr std::int64_t kMostSpaces = 1024;
  KAKEYA_ASSIGN_OR_RETURN(const auto content, require<std::string_view>(step, "content"));
  KAKEYA_ASSIGN_OR_RETURN(const auto start, get_or<std::int64_t>(step, "start", 0));
  KAKEYA_ASSIGN_OR_RETURN(const auto stop, get_or<std::int64_t>(step, "stop", 0));
  if (content != " ") return unsupported("decoder", "Strip of anything but spaces");
  if (stop != 0) return unsupported("decoder", "Strip at the end");
  if (start < 0 || start > kMostSpaces) {
    return data_loss("[tokenizer] decoder: Strip: expected a start of 0 to {}, got {}", kMostSpaces,
                     start);
  }
  decoder.leading_spaces = static_cast<std::size_t>(start);
  return {};
}

Status read_decoder(object root, DecoderOptions& decoder) {
  KAKEYA_ASSIGN_OR_RETURN(const auto steps, stage_steps(root, "decoder", "decoders"));
  if (steps.empty()) return unsupported("decoder", "null");
  bool fused = false;
  bool stripped = false;
  for (const object step : steps) {
    KAKEYA_ASSIGN_OR_RETURN(const auto type, require<std::string_view>(step, "type"));
    // Each step works on single tokens, and byte runs and joining come last: then one table of
    // decoded tokens does for all texts.
    const bool in_order = fused ? type == "Strip" && !stripped
                                : type != "Strip" && (!decoder.byte_fallback || type == "Fuse");
    if (!in_order) {
      return unsupported("decoder",
                         "Sequence in another order than Replace, ByteFallback, Fuse, Strip");
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
    } else if (type == "Strip") {
      stripped = true;
      KAKEYA_TRY(read_strip(step, decoder));
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

}  // namespace

Status read_pipeline(object root, TokenizerParts& parts) {
  KAKEYA_TRY(read_normalizer(root, parts));
  KAKEYA_TRY(read_pre_tokenizer(root, parts));
  KAKEYA_TRY(check_post_processor(root));
  parts.special_token_in_front = special_token_in_front(root["post_processor"]);
  KAKEYA_TRY(read_decoder(root, parts.decoder));
  if (parts.byte_level != parts.decoder.byte_level) {
    return unsupported("combination", "ByteLevel in only one of pre_tokenizer and decoder");
  }
  return {};
}

}  // namespace kakeya::tokenizer_json

namespace kakeya {

Status parse_tokenizer_pipeline(std::string_view json, TokenizerParts& parts) {
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  const auto code = parser.parse(json.data(), json.size()).get(root);
  if (code != simdjson::SUCCESS) {
    return data_loss("[tokenizer] not a JSON object: {}", simdjson::error_message(code));
  }
  return tokenizer_json::read_pipeline(root, parts);
}

}  // namespace kakeya
