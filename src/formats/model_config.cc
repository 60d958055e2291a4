#include "formats/model_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "formats/families.h"
#include "formats/file_kind.h"
#include "formats/generation_notes.h"
#include "formats/gguf_config.h"
#include "formats/json_document.h"
#include "formats/model_config_parts.h"
#include "formats/model_tensors.h"
#include "formats/printable.h"
#include "formats/unsupported_fields.h"

namespace kakeya {

namespace {

constexpr IntegerRange kExperts = {1, 4096};

Result<Architecture> read_architecture(const std::string& model_type) {
  if (const Family* family = find_family(model_type)) return family->architecture;
  return error(StatusCode::kUnimplemented, "model_type \"{}\" is not supported; expected one of {}",
               printable(model_type), known_model_types());
}

Status reject_drafter(const JsonFields& root) {
  KAKEYA_ASSIGN_OR_RETURN(const bool drafter, is_drafter(root));
  if (!drafter) return {};
  return invalid_argument(
      "this is the configuration of a DFlash drafter, expected that of a model");
}

Status read_experts_beside_mlp(const JsonFields& text, ModelConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(config.enable_moe_block, text.boolean_or("enable_moe_block", false));
  if (!config.enable_moe_block) return {};
  KAKEYA_ASSIGN_OR_RETURN(config.num_experts, text.integer("num_experts", kExperts));
  KAKEYA_ASSIGN_OR_RETURN(config.top_k_experts,
                          text.integer("top_k_experts", {1, config.num_experts}));
  const bool old_spelling = !text.has("moe_intermediate_size");
  KAKEYA_ASSIGN_OR_RETURN(
      config.moe_intermediate_size,
      text.integer(old_spelling ? "expert_intermediate_size" : "moe_intermediate_size",
                   kWidthRange));
  return {};
}

// Layers of experts alone; what a configuration may ask for besides is refused.
Status read_experts_instead_of_mlp(const JsonFields& text, ModelConfig& config) {
  config.enable_moe_block = true;
  const bool new_spelling = !text.has("num_experts");
  KAKEYA_ASSIGN_OR_RETURN(
      config.num_experts,
      text.integer(new_spelling ? "num_local_experts" : "num_experts", kExperts));
  KAKEYA_ASSIGN_OR_RETURN(config.top_k_experts,
                          text.integer("num_experts_per_tok", {1, config.num_experts}));
  KAKEYA_ASSIGN_OR_RETURN(config.moe_intermediate_size,
                          text.integer("moe_intermediate_size", kWidthRange));
  KAKEYA_ASSIGN_OR_RETURN(const bool normed, text.boolean_or("norm_topk_prob", false));
  if (normed) return {};
  return error(StatusCode::kUnimplemented,
               "{}: expected true, got false: weights of experts that do not sum to 1 are not "
               "supported",
               text.name("norm_topk_prob"));
}

Status read_per_layer_inputs(const JsonFields& text, ModelConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(config.hidden_size_per_layer_input,
                          text.integer_or("hidden_size_per_layer_input", 0, {0, kWidthRange.high}));
  if (config.hidden_size_per_layer_input > 0) {
    // Every token id looks up a row, so a shorter table could not serve the vocabulary.
    KAKEYA_ASSIGN_OR_RETURN(config.vocab_size_per_layer_input,
                            text.integer_or("vocab_size_per_layer_input", config.vocab_size,
                                            {config.vocab_size, kVocabularyRange.high}));
  }
  KAKEYA_ASSIGN_OR_RETURN(
      config.num_kv_shared_layers,
      text.integer_or("num_kv_shared_layers", 0, {0, config.num_hidden_layers - 1}));
  KAKEYA_ASSIGN_OR_RETURN(config.use_double_wide_mlp,
                          text.boolean_or("use_double_wide_mlp", false));
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.kv_source_layer(layer) < 0) {
      return invalid_argument(
          "{}: layer {} shares keys and values, but no earlier layer of its type owns any",
          text.name("num_kv_shared_layers"), layer);
    }
  }
  return {};
}

// Reads the padding id; writers put -1, also as 32 bits without a sign, where there is none.
Status read_padding(const JsonFields& fields, ModelConfig& config) {
  constexpr const char* kKey = "pad_token_id";
  if (!fields.has(kKey)) return {};
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t id, fields.integer(kKey, {-1, UINT32_MAX}));
  if (id == -1 || id == UINT32_MAX) return {};
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t inside,
                          fields.integer(kKey, {0, config.vocab_size - 1}));
  config.pad_token_id = static_cast<TokenId>(inside);
  return {};
}

// Token ids are optional fields of the outer and of the text part; the outer one comes first.
Status read_token_ids(const JsonFields& root, const JsonFields& text, ModelConfig& config) {
  const IntegerRange range = {0, config.vocab_size - 1};
  for (const JsonFields* fields : {&root, &text}) {
    KAKEYA_ASSIGN_OR_RETURN(const auto ids, fields->integers("eos_token_id", range));
    add_token_ids(ids, config.eos_token_ids);
  }
  const auto read_one = [&](std::string_view key, std::optional<TokenId>& target) -> Status {
    const JsonFields& fields = text.has(key) ? text : root;
    if (!fields.has(key)) return {};
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t id, fields.integer(key, range));
    target = static_cast<TokenId>(id);
    return {};
  };
  KAKEYA_TRY(read_one("bos_token_id", config.bos_token_id));
  return read_padding(text.has("pad_token_id") ? text : root, config);
}

Status read_tied(const JsonFields& root, const JsonFields& text, ModelConfig& config) {
  const bool fallback = family_of(config.architecture).defaults.tie_word_embeddings;
  const JsonFields& fields = text.has("tie_word_embeddings") ? text : root;
  KAKEYA_ASSIGN_OR_RETURN(config.tie_word_embeddings,
                          fields.boolean_or("tie_word_embeddings", fallback));
  return {};
}

Result<ModelConfig> parse_model_root(const JsonFields& root) {
  ModelConfig config;
  KAKEYA_TRY(reject_drafter(root));
  KAKEYA_TRY(check_quantization(root));
  KAKEYA_ASSIGN_OR_RETURN(const auto nested, root.object("text_config"));
  const JsonFields& text = nested ? *nested : root;
  KAKEYA_TRY(check_quantization(text));

  KAKEYA_ASSIGN_OR_RETURN(const std::string text_type, text.text_or("model_type", ""));
  KAKEYA_ASSIGN_OR_RETURN(config.model_type, root.text_or("model_type", text_type));
  if (config.model_type.empty())
    return invalid_argument("model_type: expected a name, got nothing");
  KAKEYA_ASSIGN_OR_RETURN(config.architecture, read_architecture(config.model_type));
  for (const JsonFields* fields : {&root, &text}) {
    KAKEYA_TRY(reject_unsupported_fields(*fields, config.architecture, StackKind::kModel));
  }

  const Family& family = family_of(config.architecture);
  KAKEYA_ASSIGN_OR_RETURN(
      config.vocab_size,
      size_or_default(text, "vocab_size", family.defaults.vocab_size, kVocabularyRange));
  KAKEYA_ASSIGN_OR_RETURN(
      config.max_position_embeddings,
      size_or_default(text, "max_position_embeddings", family.defaults.max_position_embeddings,
                      kPositionsRange));
  KAKEYA_ASSIGN_OR_RETURN(const double cap,
                          text.number_or("final_logit_softcapping", 0.0, kSoftCapRange));
  config.final_logit_softcapping = static_cast<float>(cap);
  KAKEYA_TRY(read_sizes(text, config));
  KAKEYA_TRY(read_activation(text, config));
  KAKEYA_TRY(read_biases(text, config));
  KAKEYA_TRY(read_layer_types(text, StackKind::kModel, config));
  KAKEYA_TRY(read_heads(text, config));
  KAKEYA_TRY(read_rope(text, config));
  if (family.experts == Experts::kInsteadOfMlp) {
    KAKEYA_TRY(read_experts_instead_of_mlp(text, config));
  } else if (config.architecture == Architecture::kGemma4) {
    KAKEYA_TRY(read_experts_beside_mlp(text, config));
    KAKEYA_TRY(read_per_layer_inputs(text, config));
  }
  KAKEYA_TRY(read_tied(root, text, config));
  KAKEYA_TRY(read_token_ids(root, text, config));
  KAKEYA_TRY(parameter_count(config));
  return config;
}

template <typename T>
Status read_optional(const JsonFields& root,
                     std::string_view key,
                     NumberRange range,
                     std::optional<T>& target) {
  if (!root.has(key)) return {};
  KAKEYA_ASSIGN_OR_RETURN(const double value, root.number_or(key, 0.0, range));
  target = static_cast<T>(value);
  return {};
}

}  // namespace

void add_token_ids(const std::vector<std::int64_t>& ids, std::vector<TokenId>& target) {
  for (const std::int64_t id : ids) {
    const auto token = static_cast<TokenId>(id);
    if (std::find(target.begin(), target.end(), token) == target.end()) target.push_back(token);
  }
}

bool ModelConfig::is_sliding(std::int64_t layer) const {
  KAKEYA_CHECK(layer >= 0 && layer < static_cast<std::int64_t>(layer_types.size()));
  return layer_types[static_cast<std::size_t>(layer)] == LayerType::kSliding;
}

std::int64_t ModelConfig::layer_head_dim(std::int64_t layer) const {
  return is_sliding(layer) ? head_dim : global_head_dim;
}

std::int64_t ModelConfig::layer_kv_heads(std::int64_t layer) const {
  return is_sliding(layer) ? num_key_value_heads : num_global_key_value_heads;
}

bool ModelConfig::owns_kv(std::int64_t layer) const {
  return layer < num_hidden_layers - num_kv_shared_layers;
}

std::int64_t ModelConfig::kv_source_layer(std::int64_t layer) const {
  if (owns_kv(layer)) return layer;
  std::int64_t source = num_hidden_layers - num_kv_shared_layers - 1;
  while (source >= 0 && is_sliding(source) != is_sliding(layer)) --source;
  return source;
}

bool ModelConfig::values_are_keys(std::int64_t layer) const {
  return attention_k_eq_v && !is_sliding(layer);
}

std::int64_t ModelConfig::layer_intermediate_size(std::int64_t layer) const {
  return use_double_wide_mlp && !owns_kv(layer) ? 2 * intermediate_size : intermediate_size;
}

float ModelConfig::attention_scale(std::int64_t layer) const {
  if (!family_of(architecture).scaled_scores) return 1.0F;
  const bool given = query_pre_attn_scalar != 0.0;
  return 1.0F / std::sqrt(given ? static_cast<float>(query_pre_attn_scalar)
                                : static_cast<float>(layer_head_dim(layer)));
}

Result<ModelConfig> parse_model_config(std::string_view json) {
  KAKEYA_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(json));
  KAKEYA_ASSIGN_OR_RETURN(const JsonFields root, root_fields(document));
  return parse_model_root(root);
}

Result<GenerationConfig> parse_generation_config(std::string_view json) {
  KAKEYA_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(json));
  KAKEYA_ASSIGN_OR_RETURN(const JsonFields root, root_fields(document));
  constexpr IntegerRange kTokenIds = {0, INT32_MAX};
  GenerationConfig config;
  KAKEYA_ASSIGN_OR_RETURN(config.do_sample, root.boolean_or("do_sample", false));
  KAKEYA_TRY(read_optional(root, "temperature", {0.0, 1e6}, config.temperature));
  KAKEYA_TRY(read_optional(root, "top_p", {0.0, 1.0}, config.top_p));
  KAKEYA_TRY(read_optional(root, "min_p", {0.0, 1.0}, config.min_p));
  KAKEYA_TRY(read_optional(root, "repetition_penalty", {1e-6, 1e6}, config.repetition_penalty));
  if (root.has("top_k")) {
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t top_k, root.integer("top_k", {-1, INT32_MAX}));
    config.top_k = static_cast<int>(std::max<std::int64_t>(top_k, 0));  // -1 is off as well
  }
  KAKEYA_ASSIGN_OR_RETURN(const auto eos, root.integers("eos_token_id", kTokenIds));
  KAKEYA_ASSIGN_OR_RETURN(const auto suppressed, root.integers("suppress_tokens", kTokenIds));
  add_token_ids(eos, config.eos_token_ids);
  add_token_ids(suppressed, config.suppress_tokens);
  return config;
}

Result<std::vector<std::string>> fields_not_followed(std::string_view json) {
  KAKEYA_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(json));
  KAKEYA_ASSIGN_OR_RETURN(const JsonFields root, root_fields(document));
  return unsupported_sampling(root);
}

Result<std::vector<std::string>> load_fields_not_followed(const std::string& dir) {
  const std::string path = dir + "/generation_config.json";
  std::error_code ignored;
  if (is_gguf_path(dir) || !std::filesystem::exists(path, ignored)) {
    return std::vector<std::string>();
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, read_config_file(path));
  auto fields = fields_not_followed(text);
  if (!fields) return Unexpected(fields.error().with_context(path));
  return fields;
}

Result<ModelConfig> load_model_config(const std::string& dir) {
  if (is_gguf_path(dir)) {
    KAKEYA_ASSIGN_OR_RETURN(const GgufCheckpoint checkpoint, GgufCheckpoint::open(dir));
    return read_gguf_model_config(checkpoint);
  }
  const std::string path = dir + "/config.json";
  std::error_code unreadable;
  if (!std::filesystem::exists(dir, unreadable)) {
    return error(StatusCode::kNotFound,
                 "{}: expected a model's folder or GGUF file, got no such folder or file", dir);
  }
  if (std::filesystem::is_regular_file(dir, unreadable)) {
    return invalid_argument("{}: expected a model's folder or a file FILE.gguf", dir);
  }
  if (!std::filesystem::exists(path, unreadable)) {
    return error(StatusCode::kNotFound, "{}: expected a model's configuration, got no such file{}",
                 path, gguf_beside(dir));
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, read_config_file(path));
  auto config = parse_model_config(text);
  if (!config) return Unexpected(config.error().with_context(path));
  return config;
}

Result<GenerationConfig> load_generation_config(const std::string& dir) {
  if (is_gguf_path(dir)) {
    KAKEYA_ASSIGN_OR_RETURN(const GgufCheckpoint checkpoint, GgufCheckpoint::open(dir));
    return read_gguf_generation_config(checkpoint);
  }
  const std::string path = dir + "/generation_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return GenerationConfig();
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, read_config_file(path));
  auto config = parse_generation_config(text);
  if (!config) return Unexpected(config.error().with_context(path));
  return config;
}

}  // namespace kakeya
