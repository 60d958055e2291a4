#include "formats/model_config.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/mapped_file.h"
#include "base/status.h"
#include "formats/json_document.h"
#include "formats/model_config_parts.h"
#include "formats/model_tensors.h"
#include "formats/printable.h"

namespace kakeya {

namespace {

constexpr IntegerRange kLayers = {1, 1024};
constexpr IntegerRange kHeads = {1, 1024};
constexpr IntegerRange kHeadDim = {2, 4096};
constexpr IntegerRange kWidth = {1, 1 << 22};
constexpr IntegerRange kVocabulary = {1, 1 << 24};
constexpr IntegerRange kPositions = {1, 1 << 30};
constexpr IntegerRange kExperts = {1, 4096};
constexpr std::size_t kMaxConfigBytes = 16 << 20;

Result<Architecture> read_architecture(const std::string& model_type) {
  constexpr std::array kGemma4 = {"gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"};
  for (const std::string_view name : kGemma4) {
    if (model_type == name) return Architecture::kGemma4;
  }
  if (model_type == "qwen3") return Architecture::kQwen3;
  return error(StatusCode::kUnimplemented,
               "model_type \"{}\" is not supported; expected one of {}, qwen3",
               printable(model_type), fmt::join(kGemma4, ", "));
}

Status reject_drafter(const JsonFields& root) {
  KAKEYA_ASSIGN_OR_RETURN(const auto architectures, root.texts("architectures"));
  const bool named = std::any_of(architectures.begin(), architectures.end(),
                                 [](std::string_view name) { return name.starts_with("DFlash"); });
  if (!named && !root.has("dflash_config")) return {};
  return invalid_argument(
      "this is the configuration of a DFlash drafter, expected that of a model");
}

Status reject_quantized(const JsonFields& fields) {
  for (const std::string_view key : {"quantization", "quantization_config"}) {
    KAKEYA_ASSIGN_OR_RETURN(const auto block, fields.object(key));
    if (!block) continue;
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t bits, block->integer_or("bits", 0, {1, 64}));
    const std::string what = bits > 0 ? fmt::format("{} bits", bits) : "bits not stated";
    return error(StatusCode::kUnimplemented, "{}: quantised checkpoints ({}) are not read yet",
                 fields.name(key), what);
  }
  return {};
}

Status read_sizes(const JsonFields& text, ModelConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(config.vocab_size, text.integer("vocab_size", kVocabulary));
  KAKEYA_ASSIGN_OR_RETURN(config.hidden_size, text.integer("hidden_size", kWidth));
  KAKEYA_ASSIGN_OR_RETURN(config.intermediate_size, text.integer("intermediate_size", kWidth));
  KAKEYA_ASSIGN_OR_RETURN(config.num_hidden_layers, text.integer("num_hidden_layers", kLayers));
  KAKEYA_ASSIGN_OR_RETURN(config.max_position_embeddings,
                          text.integer("max_position_embeddings", kPositions));
  KAKEYA_ASSIGN_OR_RETURN(const double epsilon, text.number_or("rms_norm_eps", 1e-6, {1e-12, 1.0}));
  config.rms_norm_eps = static_cast<float>(epsilon);
  KAKEYA_ASSIGN_OR_RETURN(const double cap,
                          text.number_or("final_logit_softcapping", 0.0, {0.0, 1e6}));
  config.final_logit_softcapping = static_cast<float>(cap);
  return {};
}

Status read_activation(const JsonFields& text, ModelConfig& config) {
  const bool gemma = config.architecture == Architecture::kGemma4;
  const std::string_view key = gemma ? "hidden_activation" : "hidden_act";
  const std::string_view expected = gemma ? "gelu_pytorch_tanh" : "silu";
  KAKEYA_ASSIGN_OR_RETURN(const std::string name, text.text_or(key, expected));
  if (name != expected) {
    return error(StatusCode::kUnimplemented, "{}: expected \"{}\", got \"{}\"", text.name(key),
                 expected, printable(name));
  }
  config.hidden_activation = gemma ? Activation::kGeluTanh : Activation::kSilu;
  KAKEYA_ASSIGN_OR_RETURN(const bool bias, text.boolean_or("attention_bias", false));
  if (bias) {
    return error(StatusCode::kUnimplemented, "{}: projections with a bias are not supported",
                 text.name("attention_bias"));
  }
  return {};
}

Status read_heads(const JsonFields& text, ModelConfig& config) {
  const bool gemma = config.architecture == Architecture::kGemma4;
  KAKEYA_ASSIGN_OR_RETURN(config.num_attention_heads, text.integer("num_attention_heads", kHeads));
  KAKEYA_ASSIGN_OR_RETURN(
      config.num_key_value_heads,
      text.integer_or("num_key_value_heads", config.num_attention_heads, kHeads));
  // The defaults are those of the Hugging Face configuration classes.
  KAKEYA_ASSIGN_OR_RETURN(config.head_dim,
                          text.integer_or("head_dim", gemma ? 256 : 128, kHeadDim));
  config.global_head_dim = config.head_dim;
  config.num_global_key_value_heads = config.num_key_value_heads;
  if (gemma) {
    KAKEYA_ASSIGN_OR_RETURN(config.global_head_dim,
                            text.integer_or("global_head_dim", 512, kHeadDim));
    KAKEYA_ASSIGN_OR_RETURN(config.attention_k_eq_v, text.boolean_or("attention_k_eq_v", false));
    KAKEYA_ASSIGN_OR_RETURN(
        const std::int64_t full,
        text.integer_or("num_global_key_value_heads", config.num_key_value_heads, kHeads));
    if (config.attention_k_eq_v) config.num_global_key_value_heads = full;
  }
  for (const std::int64_t heads : {config.num_key_value_heads, config.num_global_key_value_heads}) {
    if (config.num_attention_heads % heads != 0) {
      return invalid_argument("{}: expected a multiple of the {} key/value heads, got {}",
                              text.name("num_attention_heads"), heads, config.num_attention_heads);
    }
  }
  for (const std::int64_t dim : {config.head_dim, config.global_head_dim}) {
    if (dim % 2 != 0) {
      return invalid_argument("{}: expected an even number, got {}", text.name("head_dim"), dim);
    }
  }
  return {};
}

Status read_experts(const JsonFields& text, ModelConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(config.enable_moe_block, text.boolean_or("enable_moe_block", false));
  if (!config.enable_moe_block) return {};
  KAKEYA_ASSIGN_OR_RETURN(config.num_experts, text.integer("num_experts", kExperts));
  KAKEYA_ASSIGN_OR_RETURN(config.top_k_experts,
                          text.integer("top_k_experts", {1, config.num_experts}));
  const bool old_spelling = !text.has("moe_intermediate_size");
  KAKEYA_ASSIGN_OR_RETURN(
      config.moe_intermediate_size,
      text.integer(old_spelling ? "expert_intermediate_size" : "moe_intermediate_size", kWidth));
  return {};
}

Status read_per_layer_inputs(const JsonFields& text, ModelConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(config.hidden_size_per_layer_input,
                          text.integer_or("hidden_size_per_layer_input", 0, {0, kWidth.high}));
  if (config.hidden_size_per_layer_input > 0) {
    // Every token id looks up a row, so a shorter table could not serve the vocabulary.
    KAKEYA_ASSIGN_OR_RETURN(config.vocab_size_per_layer_input,
                            text.integer_or("vocab_size_per_layer_input", config.vocab_size,
                                            {config.vocab_size, kVocabulary.high}));
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
  return read_one("pad_token_id", config.pad_token_id);
}

Status read_tied(const JsonFields& root, const JsonFields& text, ModelConfig& config) {
  // Gemma4Config ties by default, Qwen3Config does not.
  const bool fallback = config.architecture == Architecture::kGemma4;
  const JsonFields& fields = text.has("tie_word_embeddings") ? text : root;
  KAKEYA_ASSIGN_OR_RETURN(config.tie_word_embeddings,
                          fields.boolean_or("tie_word_embeddings", fallback));
  return {};
}

Result<ModelConfig> parse_root(const JsonFields& root) {
  ModelConfig config;
  KAKEYA_TRY(reject_drafter(root));
  KAKEYA_TRY(reject_quantized(root));
  KAKEYA_ASSIGN_OR_RETURN(const auto nested, root.object("text_config"));
  const JsonFields& text = nested ? *nested : root;
  KAKEYA_TRY(reject_quantized(text));

  KAKEYA_ASSIGN_OR_RETURN(const std::string text_type, text.text_or("model_type", ""));
  KAKEYA_ASSIGN_OR_RETURN(config.model_type, root.text_or("model_type", text_type));
  if (config.model_type.empty())
    return invalid_argument("model_type: expected a name, got nothing");
  KAKEYA_ASSIGN_OR_RETURN(config.architecture, read_architecture(config.model_type));

  KAKEYA_TRY(read_sizes(text, config));
  KAKEYA_TRY(read_activation(text, config));
  KAKEYA_TRY(read_heads(text, config));
  KAKEYA_TRY(read_layer_types(text, config));
  KAKEYA_TRY(read_rope(text, config));
  if (config.architecture == Architecture::kGemma4) {
    KAKEYA_TRY(read_experts(text, config));
    KAKEYA_TRY(read_per_layer_inputs(text, config));
  }
  KAKEYA_TRY(read_tied(root, text, config));
  KAKEYA_TRY(read_token_ids(root, text, config));
  KAKEYA_TRY(parameter_count(config));
  return config;
}

Result<std::string> read_text_file(const std::string& path) {
  KAKEYA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  if (bytes.size() > kMaxConfigBytes) {
    return invalid_argument("{}: {} bytes, expected at most {}", path, bytes.size(),
                            kMaxConfigBytes);
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<JsonFields> root_fields(const JsonDocument& document) {
  simdjson::dom::object object;
  if (document.root().get(object) != simdjson::SUCCESS) {
    return invalid_argument("expected a JSON object, got {}", describe(document.root()));
  }
  return JsonFields(object, "");
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

Result<ModelConfig> parse_model_config(std::string_view json) {
  KAKEYA_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(json));
  KAKEYA_ASSIGN_OR_RETURN(const JsonFields root, root_fields(document));
  return parse_root(root);
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
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t top_k, root.integer("top_k", {0, INT32_MAX}));
    config.top_k = static_cast<int>(top_k);
  }
  KAKEYA_ASSIGN_OR_RETURN(const auto eos, root.integers("eos_token_id", kTokenIds));
  KAKEYA_ASSIGN_OR_RETURN(const auto suppressed, root.integers("suppress_tokens", kTokenIds));
  add_token_ids(eos, config.eos_token_ids);
  add_token_ids(suppressed, config.suppress_tokens);
  return config;
}

Result<ModelConfig> load_model_config(const std::string& dir) {
  const std::string path = dir + "/config.json";
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  auto config = parse_model_config(text);
  if (!config) return Unexpected(config.error().with_context(path));
  return config;
}

Result<GenerationConfig> load_generation_config(const std::string& dir) {
  const std::string path = dir + "/generation_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return GenerationConfig();
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  auto config = parse_generation_config(text);
  if (!config) return Unexpected(config.error().with_context(path));
  return config;
}

}  // namespace kakeya
