// tokenizer.* keys of GGUF files, declared in convert/gguf_metadata.h.
#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/mapped_file.h"
#include "base/status.h"
#include "convert/gguf_metadata.h"
#include "convert/tokenizer_check.h"
#include "convert/vocabulary_kind.h"
#include "formats/json_document.h"
#include "formats/printable.h"
#include "kakeya/tokenizer.h"

namespace kakeya {

namespace {

using simdjson::SUCCESS;
using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

// The kinds of tokens, by the numbers of the format.
constexpr std::int32_t kNormal = 1;
constexpr std::int32_t kUnknown = 2;
constexpr std::int32_t kControl = 3;
constexpr std::int32_t kUserDefined = 4;
constexpr std::int32_t kUnused = 5;
constexpr std::int32_t kByte = 6;

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;

// Special tokens of Gemma 4 that are not marked as control, because readers of answers need to see
// them.
constexpr std::array<std::string_view, 7> kVisible = {
    "<|channel>",       "<channel|>",       "<|tool_call>", "<tool_call|>",
    "<|tool_response>", "<tool_response|>", "<|\"|>"};

// "<0x00>" ... "<0xFF>"
bool is_byte_token(std::string_view text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return text.size() == 6 && text.starts_with("<0x") && text.back() == '>' && is_digit(text[3]) &&
         is_digit(text[4]);
}

Result<std::string> read_whole(const std::string& path) {
  KAKEYA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

class VocabularyReader {
 public:
  VocabularyReader(const std::string& dir, const ModelConfig& config)
      : dir_(dir), config_(config) {}

  Result<std::vector<GgufMetadata>> read() {
    const std::string path = dir_ + "/tokenizer.json";
    KAKEYA_ASSIGN_OR_RETURN(const std::string text, read_whole(path));
    auto read = [&]() -> Status {
      KAKEYA_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(text));
      return read_tokenizer(document.root());
    }();
    if (!read) return Unexpected(read.error().with_context(path));
    const auto tokenizer = Tokenizer::parse(text);
    if (!tokenizer) return Unexpected(tokenizer.error().with_context(path));
    begins_texts_ = tokenizer->begins_texts();
    KAKEYA_TRY(read_config());
    KAKEYA_TRY(check_gguf_tokenizer(path, entries_));
    return std::move(entries_);
  }

 private:
  bool gemma4() const { return config_.architecture == Architecture::kGemma4; }

  void add(const char* key, GgufMetadataValue value) {
    entries_.push_back({std::string("tokenizer.") + key, std::move(value)});
  }

  Status read_tokenizer(element root) {
    object vocabulary;
    if (root["model"]["vocab"].get(vocabulary) != SUCCESS) {
      return error(StatusCode::kUnimplemented, "model.vocab: expected the tokens of a BPE model");
    }
    tokens_.resize(static_cast<std::size_t>(config_.vocab_size));
    types_.resize(tokens_.size(), kUnused);
    for (const auto field : vocabulary) {
      std::int64_t id = 0;
      if (field.value.get(id) != SUCCESS) return invalid_argument("model.vocab: expected numbers");
      KAKEYA_TRY(add_token(field.key, id, is_byte_token(field.key) ? kByte : kNormal));
    }
    kind_ = &gguf_kind_of(root, gemma4());
    KAKEYA_TRY(read_added_tokens(root));
    mark_unknown(root);
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      if (types_[id] == kUnused) tokens_[id] = fmt::format("[PAD{}]", id);
    }
    KAKEYA_TRY(read_merges(root));
    KAKEYA_TRY(add_kind());
    add("ggml.tokens", tokens_);
    add("ggml.token_type", types_);
    return {};
  }

  // The names of the kind, and merges or scores.
  Status add_kind() {
    add("ggml.model", std::string(kind_->model));
    if (kind_->has_scores) {
      KAKEYA_ASSIGN_OR_RETURN(auto scores, scores_of_merges(tokens_, types_, merges_));
      add("ggml.pre", std::string("default"));
      add("ggml.scores", std::move(scores));
      add("ggml.add_space_prefix", kind_->space_prefix);
      return {};
    }
    std::vector<std::string> texts;
    for (const auto& [left, right] : merges_) texts.push_back(fmt::format("{} {}", left, right));
    add("ggml.merges", std::move(texts));
    if (kind_->byte_level) {
      add("ggml.pre", std::string(kind_->pre));
    } else {
      add("ggml.scores", std::vector<float>(tokens_.size(), -1000.0F));
      add("ggml.add_space_prefix", false);
    }
    return {};
  }

  // The token of characters without one; Gemma 4's is a control token.
  void mark_unknown(element root) {
    std::string_view text;
    if (root["model"]["unk_token"].get(text) != SUCCESS) return;
    const auto token = std::find(tokens_.begin(), tokens_.end(), text);
    if (token == tokens_.end()) return;
    const auto id = token - tokens_.begin();
    unknown_ = static_cast<TokenId>(id);
    if (kind_->has_scores) types_[static_cast<std::size_t>(id)] = kUnknown;
  }

  Status add_token(std::string_view text, std::int64_t id, std::int32_t type) {
    if (id < 0 || id >= kMaxTokens) {
      return invalid_argument("token {}: expected a number below {}, got {}", printable(text),
                              kMaxTokens, id);
    }
    const auto index = static_cast<std::size_t>(id);
    if (index >= tokens_.size()) {
      tokens_.resize(index + 1);
      types_.resize(index + 1, kUnused);
    }
    tokens_[index] = text;
    types_[index] = type;
    return {};
  }

  Status read_added_tokens(element root) {
    array added;
    if (root["added_tokens"].get(added) != SUCCESS) return {};
    for (const element token : added) {
      std::string_view text;
      std::int64_t id = 0;
      bool special = false;
      if (token["content"].get(text) != SUCCESS || token["id"].get(id) != SUCCESS) {
        return invalid_argument("added_tokens: expected content and id of each");
      }
      if (token["special"].get(special) != SUCCESS) special = false;
      const bool visible =
          gemma4() && std::find(kVisible.begin(), kVisible.end(), text) != kVisible.end();
      KAKEYA_TRY(add_token(text, id, special && !visible ? kControl : kUserDefined));
    }
    return {};
  }

  // A merge is "left right" or ["left", "right"].
  Status read_merges(element root) {
    array merges;
    if (root["model"]["merges"].get(merges) != SUCCESS) {
      return error(StatusCode::kUnimplemented, "model.merges: expected the merges of a BPE model");
    }
    for (const element merge : merges) {
      std::string_view left;
      std::string_view right;
      if (merge.get(left) == SUCCESS) {
        const std::size_t space = std::min(left.find(' '), left.size());
        merges_.emplace_back(left.substr(0, space), left.substr(std::min(space + 1, left.size())));
      } else if (merge.at_pointer("/0").get(left) == SUCCESS &&
                 merge.at_pointer("/1").get(right) == SUCCESS) {
        merges_.emplace_back(left, right);
      } else {
        return invalid_argument("model.merges: expected texts or pairs of texts");
      }
    }
    return {};
  }

  // Special ids, and the template.
  Status read_config() {
    const std::string path = dir_ + "/tokenizer_config.json";
    // Not JsonDocument: published files hold numbers of more than 64 bits.
    nlohmann::json root = nlohmann::json::object();
    if (exists(path)) {
      KAKEYA_ASSIGN_OR_RETURN(const std::string text, read_whole(path));
      root = nlohmann::json::parse(text, nullptr, false);
    }
    if (!root.is_object()) return invalid_argument("{}: expected a JSON object", path);
    const auto& eos = config_.eos_token_ids;
    add_id("bos", root, config_.bos_token_id);
    add_id("eos", root, eos.empty() ? std::nullopt : std::optional<TokenId>(eos.front()));
    add_id("unk", root, kind_->has_scores ? unknown_ : std::nullopt, "unknown");
    add_id("pad", root, config_.pad_token_id, "padding");
    add_id("mask", root, std::nullopt);
    const auto add_bos = root.find("add_bos_token");
    const bool given = add_bos != root.end() && add_bos->is_boolean();
    add("ggml.add_bos_token", given ? add_bos->get<bool>() : begins_texts_);
    return add_template(root);
  }

  // The id of "NAME_token", a text or an object with a content; otherwise the configuration's.
  void add_id(const std::string& name,
              const nlohmann::json& root,
              std::optional<TokenId> fallback,
              const std::string& key = "") {
    nlohmann::json text = root.value(name + "_token", nlohmann::json());
    if (text.is_object()) text = text.value("content", nlohmann::json());
    std::optional<std::uint32_t> id;
    if (text.is_string()) {
      const auto token = std::find(tokens_.begin(), tokens_.end(), text.get<std::string>());
      if (token != tokens_.end()) id = static_cast<std::uint32_t>(token - tokens_.begin());
    }
    if (!id && fallback) id = static_cast<std::uint32_t>(*fallback);
    if (!id) return;
    add(fmt::format("ggml.{}_token_id", key.empty() ? name : key).c_str(), *id);
  }

  Status add_template(const nlohmann::json& root) {
    const std::string path = dir_ + "/chat_template.jinja";
    const auto own = root.find("chat_template");
    if (exists(path)) {
      KAKEYA_ASSIGN_OR_RETURN(std::string whole, read_whole(path));
      add("chat_template", std::move(whole));
    } else if (own != root.end() && own->is_string()) {
      add("chat_template", own->get<std::string>());
    }
    return {};
  }

  const std::string& dir_;
  const ModelConfig& config_;
  bool begins_texts_ = false;  // Tokenizer::begins_texts()
  const GgufTokenizerKind* kind_ = nullptr;
  std::optional<TokenId> unknown_;
  MergeTexts merges_;
  std::vector<std::string> tokens_;
  std::vector<std::int32_t> types_;
  std::vector<GgufMetadata> entries_;
};

}  // namespace

Result<std::vector<GgufMetadata>> gguf_tokenizer_metadata(const std::string& dir,
                                                          const ModelConfig& config) {
  return VocabularyReader(dir, config).read();
}

}  // namespace kakeya
