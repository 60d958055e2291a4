#include "convert/gguf_companions.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/status.h"
#include "formats/gguf_config.h"
#include "formats/text_ends.h"
#include "text/tokenizer_gguf.h"
#include "text/tokenizer_gguf_tables.h"
#include "text/utf8.h"

namespace kakeya {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTemplate = "tokenizer.chat_template";
constexpr const char* kSuppressed = "tokenizer.ggml.suppress_tokens";

// A number of generation_config.json, and of the file.
struct SamplingNumber {
  const char* field;
  const char* key;
  std::optional<float> GenerationConfig::*value;
};
constexpr std::array kNumbers = {
    SamplingNumber{"temperature", "general.sampling.temp", &GenerationConfig::temperature},
    SamplingNumber{"top_p", "general.sampling.top_p", &GenerationConfig::top_p},
    SamplingNumber{"min_p", "general.sampling.min_p", &GenerationConfig::min_p},
    SamplingNumber{"repetition_penalty", "general.sampling.penalty_repeat",
                   &GenerationConfig::repetition_penalty},
};
constexpr const char* kTopK = "general.sampling.top_k";

// The JSON as text; all texts in it are UTF-8.
std::string text_of(const Json& json) {
  return json.dump(2) + "\n";
}

// Adds the token that tokenizer_config.json calls "NAME_token".
Status add_special_token(const GgufFile& file,
                         const char* name,
                         const std::string& key,
                         Json& config) {
  if (file.find_value(key) == nullptr) return {};
  KAKEYA_ASSIGN_OR_RETURN(const auto texts, file.texts(kTokens));
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t id, file.integer(key, {0, std::ssize(texts) - 1}));
  config[name] = texts[static_cast<std::size_t>(id)];
  return {};
}

Result<Json> tokenizer_config(const GgufFile& file, const ModelConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(const GgufTokenizerKind* kind, gguf_tokenizer_kind(file));
  Json json;
  json["tokenizer_class"] = kind->class_name;
  KAKEYA_ASSIGN_OR_RETURN(json["add_bos_token"], gguf_begins_texts(file));
  KAKEYA_TRY(add_special_token(file, "bos_token", "tokenizer.ggml.bos_token_id", json));
  KAKEYA_TRY(add_special_token(file, "eos_token", "tokenizer.ggml.eos_token_id", json));
  KAKEYA_TRY(add_special_token(file, "unk_token", "tokenizer.ggml.unknown_token_id", json));
  KAKEYA_TRY(add_special_token(file, "pad_token", "tokenizer.ggml.padding_token_id", json));
  KAKEYA_TRY(add_special_token(file, "mask_token", "tokenizer.ggml.mask_token_id", json));
  json["clean_up_tokenization_spaces"] = false;
  json["model_max_length"] = config.max_position_embeddings;
  return json;
}

Json generation_config(const GenerationConfig& generation, const ModelConfig& config) {
  Json json;
  if (config.bos_token_id) json["bos_token_id"] = *config.bos_token_id;
  json["do_sample"] = generation.do_sample;
  json["eos_token_id"] = config.eos_token_ids;
  if (config.pad_token_id) json["pad_token_id"] = *config.pad_token_id;
  for (const SamplingNumber& number : kNumbers) {
    const std::optional<float>& value = generation.*number.value;
    if (value) json[number.field] = json_number(*value);
  }
  if (generation.top_k) json["top_k"] = *generation.top_k;
  if (!generation.suppress_tokens.empty()) json["suppress_tokens"] = generation.suppress_tokens;
  return json;
}

}  // namespace

Result<GgufCompanions> gguf_companion_files(const GgufCheckpoint& checkpoint,
                                            const ModelConfig& config) {
  const GgufFile& file = checkpoint.first();
  GgufCompanions companions;
  std::vector<TextFile>& files = companions.files;
  if (has_gguf_tokenizer(file)) {
    auto tokenizer = gguf_tokenizer_json(file);
    const bool is_unknown = !tokenizer && tokenizer.error().code() == StatusCode::kUnimplemented;
    if (!tokenizer && !is_unknown) return Unexpected(tokenizer.error());
    if (is_unknown) {
      companions.left_out = "tokenizer (" + tokenizer.error().message() + ")";
    } else {
      KAKEYA_ASSIGN_OR_RETURN(const Json settings, tokenizer_config(file, config));
      files.push_back({"tokenizer.json", std::move(*tokenizer)});
      files.push_back({"tokenizer_config.json", text_of(settings)});
    }
  }
  if (file.find_value(kTemplate) != nullptr) {
    KAKEYA_ASSIGN_OR_RETURN(const std::string_view source, file.text(kTemplate));
    files.push_back({"chat_template.jinja", std::string(source)});
  }
  KAKEYA_ASSIGN_OR_RETURN(const GenerationConfig generation,
                          read_gguf_generation_config(checkpoint));
  if (generation.do_sample || !generation.suppress_tokens.empty()) {
    files.push_back({"generation_config.json", text_of(generation_config(generation, config))});
  }
  return companions;
}

Result<std::vector<GgufMetadata>> gguf_sampling_metadata(const std::string& dir) {
  KAKEYA_ASSIGN_OR_RETURN(const GenerationConfig generation, load_generation_config(dir));
  std::vector<GgufMetadata> metadata;
  if (generation.do_sample) {
    if (generation.top_k) metadata.push_back({kTopK, static_cast<std::int32_t>(*generation.top_k)});
    for (const SamplingNumber& number : kNumbers) {
      const std::optional<float>& value = generation.*number.value;
      if (value) metadata.push_back({number.key, *value});
    }
  }
  if (!generation.suppress_tokens.empty()) {
    metadata.push_back({kSuppressed, generation.suppress_tokens});
  }
  return metadata;
}

}  // namespace kakeya
