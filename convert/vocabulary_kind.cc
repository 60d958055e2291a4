#include "convert/vocabulary_kind.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <tuple>

#include "base/status.h"
#include "formats/printable.h"
#include "text/score_merges.h"

namespace kakeya {
namespace {

using simdjson::SUCCESS;
using StageJson = nlohmann::json;
// The left and the right side of a merge, by id.
using MergeIds = std::pair<TokenId, TokenId>;

constexpr std::int32_t kNormalType = 1;
constexpr std::int32_t kUserDefinedType = 4;
constexpr int kMostDepth = 64;
constexpr std::string_view kSpaceMark = "\u2581";

// A part of the file; null if it is not there.
StageJson part_of(simdjson::dom::element root, std::string_view name) {
  simdjson::dom::element part;
  if (root[name].get(part) != SUCCESS) return {};
  return StageJson::parse(std::string(simdjson::minify(part)), nullptr, false);
}

// The words for what decides ids in a stage, a line a step.
void append_steps(const StageJson& stage, int depth, std::string& lines) {
  if (!stage.is_object() || depth > kMostDepth) return;
  if (stage.value("type", StageJson()) == "Sequence") {
    for (const char* list : {"normalizers", "pretokenizers"}) {
      for (const StageJson& step : stage.value(list, StageJson::array())) {
        append_steps(step, depth + 1, lines);
      }
    }
    return;
  }
  for (const char* field : {"type", "pattern", "content", "behavior", "invert", "prepend",
                            "replacement", "individual_digits", "use_regex"}) {
    if (stage.contains(field)) lines += stage[field].dump() + ' ';
  }
  lines += '\n';
}

std::string steps_of(const StageJson& normalizer, const StageJson& pre_tokenizer) {
  std::string lines;
  append_steps(normalizer, 0, lines);
  lines += "---\n";
  append_steps(pre_tokenizer, 0, lines);
  return lines;
}

bool has_step(const StageJson& stage, std::string_view type) {
  std::string lines;
  append_steps(stage, 0, lines);
  return lines.find(StageJson(type).dump()) != std::string::npos;
}

Vocabulary vocabulary_of(const std::vector<std::string>& tokens,
                         const std::vector<bool>& candidates) {
  Vocabulary vocabulary;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    // A table of at most the tokens that the tokenizer.json had.
    if (candidates[id]) (void)vocabulary.add(tokens[id], static_cast<std::int64_t>(id));
  }
  return vocabulary;
}

}  // namespace

const GgufTokenizerKind& gguf_kind_of(simdjson::dom::element root, bool gemma4) {
  const StageJson normalizer = part_of(root, "normalizer");
  const StageJson pre_tokenizer = part_of(root, "pre_tokenizer");
  bool ignores_merges = false;
  if (root["model"]["ignore_merges"].get(ignores_merges) != SUCCESS) ignores_merges = false;
  if (!has_step(pre_tokenizer, "ByteLevel")) {
    const bool prefix = has_step(normalizer, "Prepend") || has_step(pre_tokenizer, "Metaspace");
    return *find_gguf_tokenizer_kind(gemma4 ? "gemma4" : "llama", "", prefix);
  }
  const std::string steps = steps_of(normalizer, pre_tokenizer);
  for (const GgufTokenizerKind& kind : gguf_tokenizer_kinds()) {
    if (!kind.byte_level || kind.ignore_merges != ignores_merges) continue;
    const StageJson pipeline = StageJson::parse("{" + kind.pipeline() + "}");
    if (steps_of(pipeline["normalizer"], pipeline["pre_tokenizer"]) == steps) return kind;
  }
  return *find_gguf_tokenizer_kind("gpt2", "qwen2", false);
}

Result<std::vector<float>> scores_of_merges(const std::vector<std::string>& tokens,
                                            const std::vector<std::int32_t>& types,
                                            const MergeTexts& merges) {
  std::vector<bool> candidates(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    candidates[id] = types[id] == kNormalType || types[id] == kUserDefinedType;
  }
  const Vocabulary vocabulary = vocabulary_of(tokens, candidates);
  // The user's tokens are found in a text before it is normalised: no merge needs to make those
  // that are as they were.
  const auto never_made = [&](TokenId id) {
    const auto index = static_cast<std::size_t>(id);
    return types[index] == kUserDefinedType && tokens[index].find(kSpaceMark) == std::string::npos;
  };
  candidates.resize(vocabulary.size());
  std::vector<float> scores(tokens.size(), -static_cast<float>(tokens.size()));
  std::vector<MergeIds> given;
  std::set<TokenId> made;
  TokenId last = kNoToken;
  for (const auto& [left, right] : merges) {
    const auto joined = vocabulary.find(left + right);
    const auto left_id = vocabulary.find(left);
    const auto right_id = vocabulary.find(right);
    // Control tokens are made by no text.
    if (!joined || !left_id || !right_id || never_made(*joined)) continue;
    given.emplace_back(*left_id, *right_id);
    if (*joined == last) continue;
    last = *joined;
    scores[static_cast<std::size_t>(last)] = -static_cast<float>(made.size());
    if (made.insert(last).second) continue;
    return error(StatusCode::kUnimplemented,
                 "model.merges: a GGUF file has scores of tokens in their place: expected the "
                 "merges that make \"{}\" one after another, got others between them",
                 printable(left + right));
  }
  const std::vector<double> numbers(scores.begin(), scores.begin() + std::ssize(candidates));
  KAKEYA_ASSIGN_OR_RETURN(const auto said, merges_of_scores(vocabulary, candidates, numbers));
  std::vector<MergeIds> all;
  for (const Merge& merge : said) {
    if (!never_made(merge.joined)) all.emplace_back(merge.left, merge.right);
  }
  std::ranges::sort(all);
  std::ranges::sort(given);
  std::vector<MergeIds> missing;
  std::ranges::set_difference(all, given, std::back_inserter(missing));
  if (missing.empty()) return scores;
  const auto text = [&](TokenId id) { return printable(*vocabulary.text(id)); };
  return error(StatusCode::kUnimplemented,
               "model.merges: a GGUF file has scores of tokens in their place, by which all pairs "
               "that make a token merge: expected \"{} {}\" among the merges, got none",
               text(missing.front().first), text(missing.front().second));
}

}  // namespace kakeya
