#include "formats/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "formats/printable.h"
#include "formats/text_ends.h"

namespace kakeya {

namespace {

using Json = nlohmann::json;

constexpr IntegerRange kLayers = {1, 1024};
constexpr IntegerRange kSizes = {0, std::int64_t{1} << 40};
constexpr IntegerRange kIds = {0, INT32_MAX};
constexpr NumberRange kReals = {-1e30, 1e30};
// Pairs that do not rotate are divided by this or more: their angles vanish in f32.
constexpr float kNoRotation = 1e20F;

// Fills a config.json from the keys "ARCHITECTURE.*" and the tensors.
class ConfigReader {
 public:
  ConfigReader(const GgufCheckpoint& checkpoint, GgufArchitecture architecture)
      : checkpoint_(checkpoint), file_(checkpoint.first()), architecture_(architecture) {}

  Result<std::string> read_model() {
    const bool gemma = architecture_ == GgufArchitecture::kGemma4;
    config_["architectures"] = {gemma ? "Gemma4ForCausalLM" : "Qwen3ForCausalLM"};
    config_["model_type"] = gemma ? "gemma4_text" : "qwen3";
    config_[gemma ? "hidden_activation" : "hidden_act"] = gemma ? "gelu_pytorch_tanh" : "silu";
    config_["attention_bias"] = false;
    KAKEYA_TRY(read_sizes());
    KAKEYA_TRY(read_embedding());
    KAKEYA_TRY(read_tokens());
    if (gemma) {
      KAKEYA_TRY(read_gemma4_layers());
      KAKEYA_TRY(read_gemma4_heads());
      KAKEYA_TRY(read_widths());
      KAKEYA_TRY(read_gemma4_rope());
      KAKEYA_TRY(read_gemma4_parts());
    } else {
      KAKEYA_TRY(read_plain_layers());
    }
    KAKEYA_TRY(reject_not_causal());
    return config_.dump();
  }

  Result<std::string> read_drafter() {
    config_["architectures"] = {"DFlashDraftModel"};
    config_["model_type"] = "qwen3";
    KAKEYA_TRY(read_sizes());
    KAKEYA_TRY(read_plain_layers());
    KAKEYA_TRY(read_drafter_windows());
    KAKEYA_TRY(read_drafter_parts());
    return config_.dump();
  }

 private:
  std::string key(std::string_view name) const {
    return fmt::format("{}.{}", gguf_architecture_name(architecture_), name);
  }
  bool has(std::string_view name) const { return file_.find_value(key(name)) != nullptr; }

  template <typename... Args>
  Unexpected fail(StatusCode code, fmt::format_string<Args...> format, Args&&... args) const {
    return error(code, "{}: {}", file_.path(), fmt::format(format, std::forward<Args>(args)...));
  }

  // Copies a size, or a number, to a field of config.json.
  Status copy(std::string_view name, const char* field) {
    KAKEYA_ASSIGN_OR_RETURN(config_[field], file_.integer(key(name), kSizes));
    return {};
  }
  Status copy_if_there(std::string_view name, const char* field) {
    return has(name) ? copy(name, field) : Status();
  }
  // The number, as json_number() gives it where the file has it in f32.
  Result<double> number(std::string_view name) const {
    KAKEYA_ASSIGN_OR_RETURN(const double value, file_.number(key(name), kReals));
    if (file_.find_value(key(name))->type != GgufValueType::kFloat32) return value;
    return json_number(static_cast<float>(value));
  }
  Status copy_number_if_there(std::string_view name, Json& field) {
    if (!has(name)) return {};
    KAKEYA_ASSIGN_OR_RETURN(field, number(name));
    return {};
  }

  // Checks a field that config.json does not have: where a file says it, it must be what the
  // network computes anyway.
  Status require_if_there(std::string_view name, std::int64_t expected) {
    if (!has(name)) return {};
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t got, file_.integer(key(name), kSizes));
    if (got == expected) return {};
    return fail(StatusCode::kUnimplemented, "key {}: expected {}, got {}", key(name), expected,
                got);
  }
  Status reject(std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      if (!has(name)) continue;
      return fail(StatusCode::kUnimplemented, "key {}: what it stands for is not supported",
                  key(name));
    }
    return {};
  }

  // The factor of scores: 1 in Gemma 4, head_dim^-1/2 in Qwen3.
  Status require_attention_scale() {
    if (!has("attention.scale")) return {};
    double expected = 1.0;
    if (architecture_ != GgufArchitecture::kGemma4) {
      KAKEYA_ASSIGN_OR_RETURN(const std::int64_t head_dim,
                              file_.integer(key("attention.key_length"), {1, kSizes.high}));
      expected = 1.0 / std::sqrt(static_cast<double>(head_dim));
    }
    KAKEYA_ASSIGN_OR_RETURN(const double got, number("attention.scale"));
    if (std::abs(got - expected) <= 1e-6 * expected) return {};
    return fail(StatusCode::kUnimplemented, "key {}: expected {}, got {}", key("attention.scale"),
                expected, got);
  }
  // Positions are not scaled: a factor of 1 says so.
  Status require_no_scaling() {
    constexpr std::string_view kFactor = "rope.scaling.factor";
    if (!has(kFactor)) return {};
    KAKEYA_ASSIGN_OR_RETURN(const double got, number(kFactor));
    if (got == 1.0) return {};
    return fail(StatusCode::kUnimplemented, "key {}: expected 1, got {}", key(kFactor), got);
  }

  Status read_sizes() {
    KAKEYA_ASSIGN_OR_RETURN(layers_, file_.integer(key("block_count"), kLayers));
    config_["num_hidden_layers"] = layers_;
    KAKEYA_TRY(copy("context_length", "max_position_embeddings"));
    KAKEYA_TRY(copy("embedding_length", "hidden_size"));
    KAKEYA_TRY(copy("attention.head_count", "num_attention_heads"));
    KAKEYA_ASSIGN_OR_RETURN(config_["rms_norm_eps"], number("attention.layer_norm_rms_epsilon"));
    KAKEYA_TRY(require_attention_scale());
    return reject({"attention.value_scale", "attention.clamp_kqv", "attn_logit_softcapping",
                   "residual_scale", "rope.scale_linear"});
  }

  // Rows of a look-up table.
  Result<std::int64_t> rows_of(std::string_view name) const {
    const GgufTensor* table = checkpoint_.find(name);
    if (table != nullptr && table->shape.size() == 2) return table->shape.front();
    return fail(StatusCode::kInvalidArgument, "{}: expected a tensor of 2 axes, got {}", name,
                table == nullptr ? "none" : shape_string(table->shape));
  }

  Status read_embedding() {
    KAKEYA_ASSIGN_OR_RETURN(config_["vocab_size"], rows_of("token_embd.weight"));
    config_["tie_word_embeddings"] = checkpoint_.find("output.weight") == nullptr;
    return reject({"logit_scale", "embedding_scale"});
  }

  // The ids at which text ends: those of the keys, and turn ends, which only their texts tell.
  Status read_tokens() {
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
    KAKEYA_ASSIGN_OR_RETURN(const bool begins, gguf_begins_texts(file_));
    // Files of Gemma 4 that say no are wrong.
    if (!begins && architecture_ != GgufArchitecture::kGemma4) return {};
    return read("tokenizer.ggml.bos_token_id", "bos_token_id");
  }

  Status add_turn_ends(Json& stops) {
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

  // One value for each layer, or one for all.
  Result<std::vector<std::int64_t>> by_layer(std::string_view name) const {
    KAKEYA_ASSIGN_OR_RETURN(std::vector<std::int64_t> values, file_.integers(key(name), kSizes));
    if (values.size() == 1) values.resize(static_cast<std::size_t>(layers_), values.front());
    if (std::ssize(values) == layers_) return values;
    return fail(StatusCode::kInvalidArgument,
                "key {}: expected one value or one a layer ({}), got {}", key(name), layers_,
                values.size());
  }

  Result<std::vector<bool>> sliding_layers() const {
    constexpr std::string_view kName = "attention.sliding_window_pattern";
    KAKEYA_ASSIGN_OR_RETURN(auto sliding, file_.booleans(key(kName)));
    if (std::ssize(sliding) == layers_) return sliding;
    return fail(StatusCode::kInvalidArgument, "key {}: expected one value a layer ({}), got {}",
                key(kName), layers_, sliding.size());
  }

  void set_layer_types(const std::vector<bool>& sliding) {
    for (const bool each : sliding) {
      config_["layer_types"].push_back(each ? "sliding_attention" : "full_attention");
    }
  }

  // Heads of keys and values are as many in all layers of a type. Values of full layers are their
  // keys where no layer that has keys of its own has values.
  Status read_gemma4_layers() {
    KAKEYA_ASSIGN_OR_RETURN(const auto sliding, sliding_layers());
    KAKEYA_ASSIGN_OR_RETURN(const auto kv_heads, by_layer("attention.head_count_kv"));
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t shared,
                            file_.integer_or(key("attention.shared_kv_layers"), 0, kSizes));
    set_layer_types(sliding);
    bool any_keys = false;
    bool any_values = false;
    for (std::int64_t layer = 0; layer < layers_; ++layer) {
      const auto i = static_cast<std::size_t>(layer);
      const char* field = sliding[i] ? "num_key_value_heads" : "num_global_key_value_heads";
      if (!config_.contains(field)) config_[field] = kv_heads[i];
      if (config_[field] != kv_heads[i]) {
        return fail(StatusCode::kUnimplemented,
                    "key {}: expected as many for all {} layers, got {} and {}",
                    key("attention.head_count_kv"), sliding[i] ? "sliding" : "full",
                    config_[field].get<std::int64_t>(), kv_heads[i]);
      }
      if (sliding[i] || layer >= layers_ - shared) continue;
      any_keys = true;
      any_values |= checkpoint_.find(fmt::format("blk.{}.attn_v.weight", layer)) != nullptr;
    }
    config_["attention_k_eq_v"] = any_keys && !any_values;
    config_["num_kv_shared_layers"] = shared;
    return copy("attention.sliding_window", "sliding_window");
  }

  Status read_gemma4_heads() {
    KAKEYA_TRY(copy("attention.key_length", "global_head_dim"));
    KAKEYA_TRY(copy("attention.key_length_swa", "head_dim"));
    const auto full = config_["global_head_dim"].get<std::int64_t>();
    const auto sliding = config_["head_dim"].get<std::int64_t>();
    KAKEYA_TRY(require_if_there("attention.value_length", full));
    KAKEYA_TRY(require_if_there("attention.value_length_swa", sliding));
    KAKEYA_TRY(require_if_there("rope.dimension_count", full));
    return require_if_there("rope.dimension_count_swa", sliding);
  }

  // E-models: layers that read another layer's keys and values may be twice as wide.
  Status read_widths() {
    KAKEYA_ASSIGN_OR_RETURN(const auto widths, by_layer("feed_forward_length"));
    const bool wide = widths.back() == 2 * widths.front();
    const auto shared = config_["num_kv_shared_layers"].get<std::int64_t>();
    config_["intermediate_size"] = widths.front();
    config_["use_double_wide_mlp"] = wide;
    for (std::int64_t layer = 0; layer < layers_; ++layer) {
      const std::int64_t got = widths[static_cast<std::size_t>(layer)];
      const std::int64_t expected = widths.front() * (wide && layer >= layers_ - shared ? 2 : 1);
      if (got == expected) continue;
      return fail(StatusCode::kUnimplemented, "key {}: expected {} for layer {}, got {}",
                  key("feed_forward_length"), expected, layer, got);
    }
    return {};
  }

  Status read_gemma4_rope() {
    KAKEYA_TRY(require_no_scaling());
    KAKEYA_ASSIGN_OR_RETURN(const double full, number("rope.freq_base"));
    Json sliding = 1e4;
    KAKEYA_TRY(copy_number_if_there("rope.freq_base_swa", sliding));
    KAKEYA_ASSIGN_OR_RETURN(const double rotating, rotating_part());
    config_["rope_parameters"] = {
        {"full_attention",
         {{"rope_type", "proportional"},
          {"rope_theta", full},
          {"partial_rotary_factor", rotating}}},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", sliding}}}};
    return {};
  }

  // The part of the pairs of a full layer that rotates. A file has a divisor for the frequency of
  // each pair: 1, then what makes the frequency vanish. Anything else would be another network.
  Result<double> rotating_part() const {
    const std::int64_t pairs = config_["global_head_dim"].get<std::int64_t>() / 2;
    const GgufTensor* tensor = checkpoint_.find(kGgufRopeFactors);
    if (tensor == nullptr || tensor->shape != Shape{pairs}) {
      return fail(StatusCode::kInvalidArgument, "{}: expected shape [{}], got {}", kGgufRopeFactors,
                  pairs, tensor == nullptr ? "no tensor" : shape_string(tensor->shape));
    }
    auto factors = to_f32(*tensor);
    if (!factors) return Unexpected(factors.error().with_context(file_.path()));
    const auto still =
        std::find_if(factors->begin(), factors->end(), [](float factor) { return factor != 1.0F; });
    if (!std::all_of(still, factors->end(), [](float each) { return each >= kNoRotation; })) {
      return fail(StatusCode::kUnimplemented, "{}: expected ones, then numbers of {} or more",
                  kGgufRopeFactors, kNoRotation);
    }
    const std::int64_t rotating = still - factors->begin();
    double part = static_cast<double>(rotating) / static_cast<double>(pairs);
    // Counting the pairs again rounds down.
    while (static_cast<std::int64_t>(part * static_cast<double>(2 * pairs) / 2.0) < rotating) {
      part = std::nextafter(part, 1.0);
    }
    return part;
  }

  Status read_gemma4_parts() {
    KAKEYA_TRY(copy_number_if_there("final_logit_softcapping", config_["final_logit_softcapping"]));
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t experts,
                            file_.integer_or(key("expert_count"), 0, kSizes));
    config_["enable_moe_block"] = experts > 0;
    if (experts > 0) {
      config_["num_experts"] = experts;
      KAKEYA_TRY(copy("expert_used_count", "top_k_experts"));
      KAKEYA_TRY(copy("expert_feed_forward_length", "moe_intermediate_size"));
    }
    KAKEYA_TRY(copy_if_there("embedding_length_per_layer_input", "hidden_size_per_layer_input"));
    if (config_.value("hidden_size_per_layer_input", std::int64_t{0}) == 0) return {};
    KAKEYA_ASSIGN_OR_RETURN(config_["vocab_size_per_layer_input"],
                            rows_of("per_layer_token_embd.weight"));
    return {};
  }

  // Reads the layers of Qwen3 and of drafters.
  Status read_plain_layers() {
    KAKEYA_TRY(copy("attention.head_count_kv", "num_key_value_heads"));
    KAKEYA_TRY(copy("feed_forward_length", "intermediate_size"));
    KAKEYA_TRY(copy("attention.key_length", "head_dim"));
    const auto head_dim = config_["head_dim"].get<std::int64_t>();
    KAKEYA_TRY(require_if_there("attention.value_length", head_dim));
    KAKEYA_TRY(require_if_there("rope.dimension_count", head_dim));
    KAKEYA_ASSIGN_OR_RETURN(config_["rope_theta"], number("rope.freq_base"));
    KAKEYA_ASSIGN_OR_RETURN(const auto scaling, file_.text_or(key("rope.scaling.type"), "none"));
    if (scaling == "none") return require_no_scaling();
    // An unknown type is refused with the rest of the configuration.
    config_["rope_scaling"]["rope_type"] = printable(scaling);
    return copy_number_if_there("rope.scaling.factor", config_["rope_scaling"]["factor"]);
  }

  Status reject_not_causal() {
    KAKEYA_ASSIGN_OR_RETURN(const bool causal, file_.boolean_or(key("attention.causal"), true));
    if (causal) return {};
    return fail(StatusCode::kUnimplemented, "key {}: expected true, got false",
                key("attention.causal"));
  }

  Status read_drafter_windows() {
    if (!has("attention.sliding_window_pattern")) return {};
    KAKEYA_ASSIGN_OR_RETURN(const auto sliding, sliding_layers());
    set_layer_types(sliding);
    config_["use_sliding_window"] =
        std::find(sliding.begin(), sliding.end(), true) != sliding.end();
    return copy("attention.sliding_window", "sliding_window");
  }

  Status read_drafter_parts() {
    KAKEYA_TRY(reject({"conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k",
                       "hyper_connection.count", "norm_before_fc"}));
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
    if (checkpoint_.find("token_embd.weight") == nullptr) return {};
    KAKEYA_ASSIGN_OR_RETURN(config_["vocab_size"], rows_of("token_embd.weight"));
    return {};
  }

  const GgufCheckpoint& checkpoint_;
  const GgufFile& file_;
  GgufArchitecture architecture_;
  std::int64_t layers_ = 0;
  Json config_;
};

template <typename Config>
Result<Config> with_path(Result<Config> config, const GgufCheckpoint& checkpoint) {
  if (!config) return Unexpected(config.error().with_context(checkpoint.path()));
  return config;
}

}  // namespace

Result<GgufArchitecture> gguf_architecture(const GgufCheckpoint& checkpoint) {
  KAKEYA_ASSIGN_OR_RETURN(const auto name, checkpoint.first().text("general.architecture"));
  if (const auto architecture = parse_gguf_architecture(name)) return *architecture;
  return error(StatusCode::kUnimplemented,
               "{}: key general.architecture: expected gemma4, qwen3 or dflash, got \"{}\"",
               checkpoint.path(), printable(name));
}

double json_number(float value) {
  return std::stod(fmt::format("{}", value));
}

Result<std::string> gguf_config_json(const GgufCheckpoint& checkpoint) {
  KAKEYA_ASSIGN_OR_RETURN(const GgufArchitecture architecture, gguf_architecture(checkpoint));
  ConfigReader reader(checkpoint, architecture);
  return architecture == GgufArchitecture::kDflash ? reader.read_drafter() : reader.read_model();
}

Result<ModelConfig> read_gguf_model_config(const GgufCheckpoint& checkpoint) {
  KAKEYA_ASSIGN_OR_RETURN(const GgufArchitecture architecture, gguf_architecture(checkpoint));
  if (architecture == GgufArchitecture::kDflash) {
    return invalid_argument("{}: this is a DFlash drafter, expected a model", checkpoint.path());
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::string config, gguf_config_json(checkpoint));
  return with_path(parse_model_config(config), checkpoint);
}

Result<DrafterConfig> read_gguf_drafter_config(const GgufCheckpoint& checkpoint) {
  KAKEYA_ASSIGN_OR_RETURN(const GgufArchitecture architecture, gguf_architecture(checkpoint));
  if (architecture != GgufArchitecture::kDflash) {
    return invalid_argument("{}: expected a DFlash drafter (architecture dflash), got {}",
                            checkpoint.path(), gguf_architecture_name(architecture));
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::string config, gguf_config_json(checkpoint));
  return with_path(parse_drafter_config(config), checkpoint);
}

Result<GenerationConfig> read_gguf_generation_config(const GgufCheckpoint& checkpoint) {
  const GgufFile& file = checkpoint.first();
  struct Field {
    const char* key;
    const char* field;
  };
  constexpr std::array kNumbers = {
      Field{"general.sampling.temp", "temperature"},
      Field{"general.sampling.top_p", "top_p"},
      Field{"general.sampling.min_p", "min_p"},
      Field{"general.sampling.penalty_repeat", "repetition_penalty"},
  };
  Json config = Json::object();
  for (const Field& each : kNumbers) {
    if (file.find_value(each.key) == nullptr) continue;
    KAKEYA_ASSIGN_OR_RETURN(config[each.field], file.number(each.key, kReals));
  }
  if (file.find_value("general.sampling.top_k") != nullptr) {
    KAKEYA_ASSIGN_OR_RETURN(config["top_k"],
                            file.integer("general.sampling.top_k", {-1, INT32_MAX}));
  }
  // A file only has such keys where the publisher recommends sampling.
  const bool recommended = !config.empty();
  config["do_sample"] = recommended;
  constexpr const char* kSuppressed = "tokenizer.ggml.suppress_tokens";
  if (file.find_value(kSuppressed) != nullptr) {
    KAKEYA_ASSIGN_OR_RETURN(config["suppress_tokens"], file.integers(kSuppressed, kIds));
  }
  return with_path(parse_generation_config(config.dump()), checkpoint);
}

}  // namespace kakeya
