#include "formats/gguf_config_reader.h"

#include <algorithm>
#include <cmath>

#include "formats/gguf_config.h"
#include "formats/printable.h"
#include "formats/text_ends.h"

namespace kakeya {

Result<std::string> GgufConfigReader::read_model() {
  const Family& family = family_of(static_cast<Architecture>(architecture_));
  config_["architectures"] = {std::string(family.causal_class)};
  config_["model_type"] = family.model_types.front();
  const bool gelu = family.activation == Activation::kGeluTanh;
  config_[std::string(family.activation_field)] = gelu ? "gelu_pytorch_tanh" : "silu";
  KAKEYA_TRY(read_biases(family));
  KAKEYA_TRY(read_sizes());
  KAKEYA_TRY(read_embedding());
  KAKEYA_TRY(read_tokens());
  if (is_gemma4()) {
    KAKEYA_TRY(read_gemma4());
  } else {
    KAKEYA_TRY(read_layers(&family));
    KAKEYA_TRY(read_windows(family));
    KAKEYA_TRY(read_experts(family));
  }
  KAKEYA_TRY(reject_not_causal());
  return config_.dump();
}

Result<std::string> GgufConfigReader::read_drafter() {
  config_["architectures"] = {has("selector_rank") ? "DFlash2DraftModel" : "DFlashDraftModel"};
  config_["model_type"] = "qwen3";
  KAKEYA_TRY(read_sizes());
  KAKEYA_TRY(read_layers(nullptr));
  KAKEYA_TRY(read_drafter_windows());
  KAKEYA_TRY(read_drafter_parts());
  return config_.dump();
}

Status GgufConfigReader::copy(std::string_view name, const char* field) {
  KAKEYA_ASSIGN_OR_RETURN(config_[field], file_.integer(key(name), kSizes));
  return {};
}

Status GgufConfigReader::copy_if_there(std::string_view name, const char* field) {
  return has(name) ? copy(name, field) : Status();
}

Result<double> GgufConfigReader::number(std::string_view name) const {
  KAKEYA_ASSIGN_OR_RETURN(const double value, file_.number(key(name), kReals));
  if (file_.find_value(key(name))->type != GgufValueType::kFloat32) return value;
  return json_number(static_cast<float>(value));
}

Status GgufConfigReader::copy_number_if_there(std::string_view name, Json& field) {
  if (!has(name)) return {};
  KAKEYA_ASSIGN_OR_RETURN(field, number(name));
  return {};
}

Status GgufConfigReader::require_if_there(std::string_view name, std::int64_t expected) {
  if (!has(name)) return {};
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t got, file_.integer(key(name), kSizes));
  if (got == expected) return {};
  return fail(StatusCode::kUnimplemented, "key {}: expected {}, got {}", key(name), expected, got);
}

Status GgufConfigReader::reject(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (!has(name)) continue;
    return fail(StatusCode::kUnimplemented, "key {}: what it stands for is not supported",
                key(name));
  }
  return {};
}

Status GgufConfigReader::require_attention_scale(double expected) {
  if (!has("attention.scale")) return {};
  KAKEYA_ASSIGN_OR_RETURN(const double got, number("attention.scale"));
  if (std::abs(got - expected) <= 1e-6 * expected) return {};
  return fail(StatusCode::kUnimplemented, "key {}: expected {}, got {}", key("attention.scale"),
              expected, got);
}

Status GgufConfigReader::require_no_scaling() {
  constexpr std::string_view kFactor = "rope.scaling.factor";
  if (!has(kFactor)) return {};
  KAKEYA_ASSIGN_OR_RETURN(const double got, number(kFactor));
  if (got == 1.0) return {};
  return fail(StatusCode::kUnimplemented, "key {}: expected 1, got {}", key(kFactor), got);
}

Status GgufConfigReader::reject_not_causal() {
  KAKEYA_ASSIGN_OR_RETURN(const bool causal, file_.boolean_or(key("attention.causal"), true));
  if (causal) return {};
  return fail(StatusCode::kUnimplemented, "key {}: expected true, got false",
              key("attention.causal"));
}

Status GgufConfigReader::read_sizes() {
  KAKEYA_ASSIGN_OR_RETURN(layers_, file_.integer(key("block_count"), kLayers));
  config_["num_hidden_layers"] = layers_;
  KAKEYA_TRY(copy("context_length", "max_position_embeddings"));
  KAKEYA_TRY(copy("embedding_length", "hidden_size"));
  KAKEYA_TRY(copy("attention.head_count", "num_attention_heads"));
  KAKEYA_ASSIGN_OR_RETURN(config_["rms_norm_eps"], number("attention.layer_norm_rms_epsilon"));
  return reject(
      {"attention.value_scale", "attention.clamp_kqv", "attn_logit_softcapping", "residual_scale"});
}

Result<std::int64_t> GgufConfigReader::rows_of(std::string_view name) const {
  const GgufTensor* table = checkpoint_.find(name);
  if (table != nullptr && table->shape.size() == 2) return table->shape.front();
  return fail(StatusCode::kInvalidArgument, "{}: expected a tensor of 2 axes, got {}", name,
              table == nullptr ? "none" : shape_string(table->shape));
}

Status GgufConfigReader::read_embedding() {
  KAKEYA_ASSIGN_OR_RETURN(config_["vocab_size"], rows_of("token_embd.weight"));
  config_["tie_word_embeddings"] = checkpoint_.find("output.weight") == nullptr;
  return reject({"logit_scale", "embedding_scale"});
}

// Reads the ids at which text ends: those of the keys, and turn ends, which only their texts tell.
Status GgufConfigReader::read_tokens() {
  Json& stops = config_["eos_token_id"] = Json::array();
  for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    const std::string id = std::string("tokenizer.ggml.") + name;
    if (file_.find_value(id) == nullptr) continue;
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t value, file_.integer(id, kIds));
    stops.push_back(value);
  }
  KAKEYA_TRY(add_turn_ends(stops));
  const auto read = [&](const char* id, const char* field) -> Status {
    if (file_.find_value(id) == nullptr) return {};
    KAKEYA_ASSIGN_OR_RETURN(config_[field], file_.integer(id, kIds));
    return {};
  };
  // parse_model_config() knows that -1, also as 32 bits without a sign, means none.
  constexpr const char* kPadding = "tokenizer.ggml.padding_token_id";
  if (file_.find_value(kPadding) != nullptr) {
    KAKEYA_ASSIGN_OR_RETURN(config_["pad_token_id"], file_.integer(kPadding, {-1, UINT32_MAX}));
  }
  KAKEYA_ASSIGN_OR_RETURN(const bool begins, begins_with_bos());
  if (!begins) return {};
  return read("tokenizer.ggml.bos_token_id", "bos_token_id");
}

// Files of Gemma 4 that say no are wrong.
Result<bool> GgufConfigReader::begins_with_bos() const {
  if (is_gemma4()) return true;
  return gguf_begins_texts(file_);
}

Status GgufConfigReader::add_turn_ends(Json& stops) {
  // Rows without a token. Some converters give ends the type of plain text: the text decides.
  constexpr std::int64_t kUnused = 5;
  constexpr const char* kTokens = "tokenizer.ggml.tokens";
  constexpr const char* kTypes = "tokenizer.ggml.token_type";
  if (file_.find_value(kTokens) == nullptr || file_.find_value(kTypes) == nullptr) return {};
  KAKEYA_ASSIGN_OR_RETURN(const auto texts, file_.texts(kTokens));
  KAKEYA_ASSIGN_OR_RETURN(const auto types, file_.integers(kTypes, kIds));
  const auto add = [&](std::string_view text) {
    for (std::size_t id = 0; id < std::min(texts.size(), types.size()); ++id) {
      if (texts[id] != text || types[id] == kUnused) continue;
      if (std::find(stops.begin(), stops.end(), Json(id)) == stops.end()) stops.push_back(id);
      return;
    }
  };
  std::ranges::for_each(text_end_tokens(gguf_architecture_name(architecture_)), add);
  return {};
}

Result<std::vector<std::int64_t>> GgufConfigReader::by_layer(std::string_view name) const {
  KAKEYA_ASSIGN_OR_RETURN(std::vector<std::int64_t> values, file_.integers(key(name), kSizes));
  if (values.size() == 1) values.resize(static_cast<std::size_t>(layers_), values.front());
  if (std::ssize(values) == layers_) return values;
  return fail(StatusCode::kInvalidArgument,
              "key {}: expected one value or one a layer ({}), got {}", key(name), layers_,
              values.size());
}

Result<std::vector<bool>> GgufConfigReader::sliding_layers() const {
  constexpr std::string_view kName = "attention.sliding_window_pattern";
  KAKEYA_ASSIGN_OR_RETURN(auto sliding, file_.booleans(key(kName)));
  if (std::ssize(sliding) == layers_) return sliding;
  return fail(StatusCode::kInvalidArgument, "key {}: expected one value a layer ({}), got {}",
              key(kName), layers_, sliding.size());
}

void GgufConfigReader::set_layer_types(const std::vector<bool>& sliding) {
  for (const bool each : sliding) {
    config_["layer_types"].push_back(each ? "sliding_attention" : "full_attention");
  }
}

Result<std::vector<float>> GgufConfigReader::rope_divisors(std::int64_t pairs) const {
  const GgufTensor* tensor = checkpoint_.find(kGgufRopeFactors);
  if (tensor == nullptr || tensor->shape != Shape{pairs}) {
    return fail(StatusCode::kInvalidArgument, "{}: expected shape [{}], got {}", kGgufRopeFactors,
                pairs, tensor == nullptr ? "no tensor" : shape_string(tensor->shape));
  }
  auto divisors = to_f32(*tensor);
  if (!divisors) return Unexpected(divisors.error().with_context(file_.path()));
  return divisors;
}

Status GgufConfigReader::read_drafter_windows() {
  if (!has("attention.sliding_window_pattern")) return {};
  KAKEYA_ASSIGN_OR_RETURN(const auto sliding, sliding_layers());
  set_layer_types(sliding);
  config_["use_sliding_window"] = std::find(sliding.begin(), sliding.end(), true) != sliding.end();
  return copy("attention.sliding_window", "sliding_window");
}

Status GgufConfigReader::read_drafter_parts() {
  KAKEYA_TRY(reject({"hyper_connection.count", "norm_before_fc"}));
  KAKEYA_ASSIGN_OR_RETURN(const auto activation, file_.text_or(key("hidden_activation"), "silu"));
  config_["hidden_act"] = printable(activation);
  KAKEYA_TRY(copy("block_size", "block_size"));
  Json& dflash = config_["dflash_config"];
  KAKEYA_ASSIGN_OR_RETURN(dflash["mask_token_id"],
                          file_.integer("tokenizer.ggml.mask_token_id", kIds));
  // Counted from the embedding, which is output 0; so that of layer 0 is 1.
  KAKEYA_ASSIGN_OR_RETURN(auto taps, file_.integers(key("target_layers"), {1, kLayers.high}));
  for (std::int64_t& tap : taps) --tap;
  dflash["target_layer_ids"] = taps;
  KAKEYA_TRY(copy_number_if_there("logit_scale", dflash["output_multiplier"]));
  KAKEYA_TRY(copy_number_if_there("final_logit_softcapping", dflash["final_logit_softcapping"]));
  KAKEYA_TRY(copy_number_if_there("embedding_scale", dflash["input_embedding_scale"]));
  if (has("attention.causal")) {
    KAKEYA_ASSIGN_OR_RETURN(dflash["causal"], file_.boolean(key("attention.causal")));
  }
  for (const char* name :
       {"conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"}) {
    if (!has(name)) continue;
    KAKEYA_ASSIGN_OR_RETURN(dflash[name], file_.integer(key(name), kSizes));
  }
  for (const char* table :
       {"token_embd.weight", "selector_predecessor.weight", "selector.pred_codebook"}) {
    if (checkpoint_.find(table) == nullptr) continue;
    KAKEYA_ASSIGN_OR_RETURN(config_["vocab_size"], rows_of(table));
    break;
  }
  return {};
}

}  // namespace kakeya
