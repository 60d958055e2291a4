#include "text/tokenizer_gguf_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

namespace kakeya {
namespace {

constexpr std::string_view kSpacesMarked =
    R"({"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"})";
constexpr std::string_view kSpacesMarkedBehindOne = R"({"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "\u2581"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]})";

constexpr std::string_view kCutAtSpaces = R"({"type": "Split", "pattern": {"String": " "},
    "behavior": "MergedWithPrevious", "invert": false})";
// GPT-2's expression, behind digits one by one.
constexpr std::string_view kDigitsThenGpt2 = R"({"type": "Sequence", "pretokenizers": [
    {"type": "Digits", "individual_digits": true},
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]})";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kSpacesShown = R"({"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
    {"type": "ByteFallback"}, {"type": "Fuse"}]})";
constexpr std::string_view kSpacesShownButFirst = R"({"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
    {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";

constexpr std::string_view kBytes =
    R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
    "use_regex": false})";
constexpr std::string_view kBytesCutAsGpt2 =
    R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";

constexpr GgufTokenizerKind llama3(std::string_view pre) {
  return {.model = "gpt2",
          .pre = pre,
          .expression = kLlama3Pattern,
          .decoder = kBytes,
          .byte_level = true,
          .ignore_merges = true,
          .class_name = "PreTrainedTokenizerFast"};
}

constexpr std::array kKinds = {
    GgufTokenizerKind{.model = "gemma4",
                      .normalizer = kSpacesMarked,
                      .pre_tokenizer = kCutAtSpaces,
                      .decoder = kSpacesShown,
                      .special_added = true,
                      .class_name = "GemmaTokenizer"},
    GgufTokenizerKind{.model = "gpt2",
                      .pre = "gpt-2",
                      .pre_tokenizer = kBytesCutAsGpt2,
                      .decoder = kBytes,
                      .byte_level = true,
                      .class_name = "GPT2Tokenizer"},
    llama3("llama-bpe"),
    llama3("llama-v3"),
    llama3("llama3"),
    GgufTokenizerKind{.model = "gpt2",
                      .pre = "qwen2",
                      .normalizer = R"({"type": "NFC"})",
                      .expression = kQwen2Pattern,
                      .post_processor = kBytes,
                      .decoder = kBytes,
                      .byte_level = true,
                      .class_name = "Qwen2Tokenizer"},
    GgufTokenizerKind{.model = "gpt2",
                      .pre = "smollm",
                      .pre_tokenizer = kDigitsThenGpt2,
                      .decoder = kBytes,
                      .byte_level = true,
                      .class_name = "GPT2Tokenizer"},
};

// Gemma 3: nothing in front of a text.
constexpr GgufTokenizerKind kWithoutPrefix = {.model = "llama",
                                              .normalizer = kSpacesMarked,
                                              .decoder = kSpacesShown,
                                              .has_scores = true,
                                              .class_name = "GemmaTokenizer"};
// Llama 2, TinyLlama, Mistral: a space in front of each stretch between added tokens.
constexpr GgufTokenizerKind kWithPrefix = {.model = "llama",
                                           .normalizer = kSpacesMarkedBehindOne,
                                           .decoder = kSpacesShownButFirst,
                                           .has_scores = true,
                                           .space_prefix = true,
                                           .class_name = "LlamaTokenizer"};

// "a, b or c"
std::string listed(const std::set<std::string_view>& names) {
  std::string list;
  for (auto name = names.begin(); name != names.end(); ++name) {
    const bool last = std::next(name) == names.end();
    if (name != names.begin()) list += last ? " or " : ", ";
    list += *name;
  }
  return list;
}

}  // namespace

std::string GgufTokenizerKind::pipeline() const {
  std::string cut(pre_tokenizer);
  if (!expression.empty()) {
    cut = fmt::format(R"({{"type": "Sequence", "pretokenizers": [
    {{"type": "Split", "pattern": {{"Regex": {}}}, "behavior": "Isolated", "invert": false}},
    {}]}})",
                      nlohmann::json(expression).dump(), kBytes);
  }
  return fmt::format(R"(
  "normalizer": {},
  "pre_tokenizer": {},
  "decoder": {})",
                     normalizer, cut, decoder);
}

std::span<const GgufTokenizerKind> gguf_tokenizer_kinds() {
  return kKinds;
}

const GgufTokenizerKind* find_gguf_tokenizer_kind(std::string_view model,
                                                  std::string_view pre,
                                                  bool add_space_prefix) {
  if (model == kWithPrefix.model) return add_space_prefix ? &kWithPrefix : &kWithoutPrefix;
  const auto kind = std::ranges::find_if(kKinds, [&](const GgufTokenizerKind& each) {
    return each.model == model && (each.pre.empty() || each.pre == pre);
  });
  return kind == kKinds.end() ? nullptr : &*kind;
}

std::string known_gguf_tokenizer_models() {
  std::set<std::string_view> names = {kWithPrefix.model};
  for (const GgufTokenizerKind& kind : kKinds) names.insert(kind.model);
  return listed(names);
}

std::string known_gguf_pre_tokenizers() {
  std::set<std::string_view> names;
  for (const GgufTokenizerKind& kind : kKinds) {
    if (!kind.pre.empty()) names.insert(kind.pre);
  }
  return listed(names);
}

}  // namespace kakeya
