#include "inspect_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/status.h"
#include "formats/families.h"
#include "formats/printable.h"
#include "formats/tensor_request.h"
#include "tensor_totals.h"

namespace kakeya::cli {

namespace {

TensorTotals dtype_totals(const Checkpoint& checkpoint) {
  TensorTotals totals;
  for (const SafetensorsFile& file : checkpoint.files()) {
    for (const TensorView& tensor : file.tensors()) {
      totals.add(dtype_name(tensor.dtype), tensor.bytes());
    }
  }
  return totals;
}

std::string file_name(const SafetensorsFile& file) {
  return std::filesystem::path(file.path()).filename().string();
}

std::int64_t sliding_layers(const ModelConfig& config) {
  return std::count(config.layer_types.begin(), config.layer_types.end(), LayerType::kSliding);
}

// "25.23 B", "0.40 M"
std::string short_count(std::int64_t count) {
  const auto value = static_cast<double>(count);
  return value >= 1e9 ? fmt::format("{:.2f} B", value / 1e9) : fmt::format("{:.2f} M", value / 1e6);
}

class TextLines {
 public:
  template <typename... Args>
  void add(std::string_view label, fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), "{:<14}", label);
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  void append(std::string_view lines) { text_ += lines; }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void add_layers(TextLines& lines, const ModelConfig& config) {
  const std::int64_t sliding = sliding_layers(config);
  lines.add("layers", "{}: {} full, {} sliding", config.num_hidden_layers,
            config.num_hidden_layers - sliding, sliding);
  if (sliding > 0) lines.add("window", "{}", config.sliding_window);
  lines.add("hidden", "{}", config.hidden_size);
  lines.add("query heads", "{}", config.num_attention_heads);
  if (sliding > 0) {
    lines.add("kv, sliding", "{} x {}", config.num_key_value_heads, config.head_dim);
  }
  lines.add("kv, full", "{} x {}{}", config.num_global_key_value_heads, config.global_head_dim,
            config.attention_k_eq_v ? ", values are keys" : "");
  lines.add("mlp", "{}{}", config.intermediate_size,
            config.use_double_wide_mlp ? ", doubled in layers that share keys and values" : "");
}

void add_config(TextLines& lines, const ModelConfig& config) {
  lines.add("architecture", "{} ({})", family_of(config.architecture).name,
            printable(config.model_type));
  add_layers(lines, config);
  if (config.enable_moe_block) {
    lines.add("experts", "{} of {}, {} a token", config.num_experts, config.moe_intermediate_size,
              config.top_k_experts);
  }
  if (config.hidden_size_per_layer_input > 0) {
    lines.add("layer inputs", "{}", config.hidden_size_per_layer_input);
  }
  if (config.num_kv_shared_layers > 0) {
    lines.add("shared kv", "the last {} layers", config.num_kv_shared_layers);
  }
  lines.add("vocabulary", "{}{}", config.vocab_size,
            config.tie_word_embeddings ? ", output head tied" : "");
  lines.add("positions", "{}", config.max_position_embeddings);
  lines.add("stop ids", "{}", fmt::join(config.eos_token_ids, ", "));
}

// Which rows of its block a row of the drafter sees.
std::string_view mask_rule(const DrafterConfig& drafter) {
  if (!drafter.is_causal) return "causal in sliding layers, both ways in full ones";
  return *drafter.is_causal ? "causal" : "both ways";
}

void add_drafter(TextLines& lines, const DrafterConfig& drafter) {
  const ModelConfig& layers = drafter.layers;
  lines.add("architecture", "{}, a drafter", drafter.has_selector() ? "dflash 2" : "dflash");
  add_layers(lines, layers);
  lines.add("vocabulary", "{}, embedding and output head of the target",
            layers.vocab_size > 0 ? std::to_string(layers.vocab_size) : "not stated");
  lines.add("positions", "{}", layers.max_position_embeddings);
  lines.add("target", "{} layers",
            drafter.num_target_layers > 0 ? std::to_string(drafter.num_target_layers)
                                          : "not stated how many");
  lines.add("taps", "{}", fmt::join(drafter.target_layer_ids, ", "));
  lines.add("block", "{}: 1 token and {} drafts, mask id {}", drafter.block_size,
            drafter.block_size - 1, drafter.mask_token_id);
  lines.add("mask rule", "{}", mask_rule(drafter));
  if (drafter.has_selector()) {
    lines.add("convolutions", "{} rows, {} channels a coefficient", drafter.conv_kernel_size,
              drafter.conv_group_size);
    lines.add("selector", "{} candidates a row, rank {}", drafter.selector_top_k,
              drafter.selector_rank);
  }
  if (drafter.input_embedding_scale) {
    lines.add("input scale", "{}", *drafter.input_embedding_scale);
  }
  if (drafter.output_multiplier != 1.0F) lines.add("logit scale", "{}", drafter.output_multiplier);
  if (layers.final_logit_softcapping > 0.0F) {
    lines.add("soft-cap", "{}", layers.final_logit_softcapping);
  }
}

nlohmann::ordered_json config_json(const ModelConfig& config) {
  nlohmann::ordered_json json = {
      {"model_type", config.model_type},
      {"vocab_size", config.vocab_size},
      {"hidden_size", config.hidden_size},
      {"intermediate_size", config.intermediate_size},
      {"num_hidden_layers", config.num_hidden_layers},
      {"num_sliding_layers", sliding_layers(config)},
      {"sliding_window", config.sliding_window},
      {"num_attention_heads", config.num_attention_heads},
      {"num_key_value_heads", config.num_key_value_heads},
      {"head_dim", config.head_dim},
      {"num_global_key_value_heads", config.num_global_key_value_heads},
      {"global_head_dim", config.global_head_dim},
      {"attention_k_eq_v", config.attention_k_eq_v},
      {"num_experts", config.num_experts},
      {"top_k_experts", config.top_k_experts},
      {"moe_intermediate_size", config.moe_intermediate_size},
      {"hidden_size_per_layer_input", config.hidden_size_per_layer_input},
      {"num_kv_shared_layers", config.num_kv_shared_layers},
      {"use_double_wide_mlp", config.use_double_wide_mlp},
      {"tie_word_embeddings", config.tie_word_embeddings},
      {"final_logit_softcapping", config.final_logit_softcapping},
      {"max_position_embeddings", config.max_position_embeddings},
      {"eos_token_ids", config.eos_token_ids}};
  return json;
}

template <typename T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json drafter_json(const DrafterConfig& drafter) {
  const ModelConfig& layers = drafter.layers;
  return {{"vocab_size", layers.vocab_size},
          {"hidden_size", layers.hidden_size},
          {"intermediate_size", layers.intermediate_size},
          {"num_hidden_layers", layers.num_hidden_layers},
          {"num_sliding_layers", sliding_layers(layers)},
          {"sliding_window", layers.sliding_window},
          {"num_attention_heads", layers.num_attention_heads},
          {"num_key_value_heads", layers.num_key_value_heads},
          {"head_dim", layers.head_dim},
          {"final_logit_softcapping", layers.final_logit_softcapping},
          {"max_position_embeddings", layers.max_position_embeddings},
          {"block_size", drafter.block_size},
          {"mask_token_id", drafter.mask_token_id},
          {"target_layer_ids", drafter.target_layer_ids},
          {"num_target_layers", drafter.num_target_layers},
          {"output_multiplier", drafter.output_multiplier},
          {"conv_kernel_size", drafter.conv_kernel_size},
          {"conv_group_size", drafter.conv_group_size},
          {"selector_rank", drafter.selector_rank},
          {"selector_top_k", drafter.selector_top_k},
          {"is_causal", or_null(drafter.is_causal)},
          {"input_embedding_scale", or_null(drafter.input_embedding_scale)}};
}

// Fills in what the configuration says and returns which tensors it asks for.
Result<std::vector<TensorSpec>> describe(const std::string& path, ModelSummary& summary) {
  if (is_drafter_folder(path)) {
    KAKEYA_ASSIGN_OR_RETURN(summary.drafter, load_drafter_config(path));
    std::vector<TensorSpec> specs = expected_tensors(*summary.drafter);
    KAKEYA_ASSIGN_OR_RETURN(summary.drafter_parameters, total_parameters(specs));
    return specs;
  }
  KAKEYA_ASSIGN_OR_RETURN(summary.config, load_model_config(path));
  KAKEYA_ASSIGN_OR_RETURN(summary.parameters, parameter_count(*summary.config));
  return expected_tensors(*summary.config);
}

template <typename Files>
ModelSummary summarize_any(const std::string& path, const Files& checkpoint) {
  ModelSummary summary;
  const auto wanted = describe(path, summary);
  if (!wanted) {
    summary.problem = wanted.error().message();
    return summary;
  }
  const auto tensors = resolve_tensors(checkpoint, *wanted);
  if (!tensors) summary.problem = tensors.error().message();
  return summary;
}

}  // namespace

ModelSummary summarize(const GgufCheckpoint& checkpoint) {
  return summarize_any(checkpoint.path(), checkpoint);
}

Result<InspectReport> inspect(const std::string& path) {
  auto checkpoint = Checkpoint::open(path);
  if (!checkpoint) return tl::unexpected(checkpoint.error());
  InspectReport report;
  report.checkpoint = std::move(*checkpoint);
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return report;
  static_cast<ModelSummary&>(report) = summarize_any(path, report.checkpoint);
  return report;
}

std::string summary_text(const ModelSummary& summary) {
  TextLines lines;
  if (summary.config) {
    add_config(lines, *summary.config);
    lines.add("parameters", "{} ({}), {} touched by each token", summary.parameters.total,
              short_count(summary.parameters.total),
              short_count(summary.parameters.touched_per_token));
  }
  if (summary.drafter) {
    add_drafter(lines, *summary.drafter);
    lines.add("parameters", "{} ({})", summary.drafter_parameters,
              short_count(summary.drafter_parameters));
  }
  return lines.take();
}

std::string to_text(const InspectReport& report) {
  TextLines lines;
  lines.add("path", "{}", report.checkpoint.path());
  lines.append(summary_text(report));
  for (const SafetensorsFile& file : report.checkpoint.files()) {
    lines.add("file", "{}: {} tensors", file_name(file), file.tensors().size());
    for (const auto& [key, value] : file.metadata()) {
      lines.add("metadata", "{} = {}", printable(key), printable(value));
    }
  }
  for (const auto& [name, total] : dtype_totals(report.checkpoint)) {
    lines.add("dtype", "{}: {} tensors, {} bytes", name, total.tensors, total.bytes);
  }
  lines.add("bytes", "{}", report.checkpoint.total_bytes());
  if (!report.problem.empty()) lines.add("problem", "{}", report.problem);
  std::string text = lines.take();
  for (const SafetensorsFile& file : report.checkpoint.files()) {
    for (const TensorView& tensor : file.tensors()) {
      fmt::format_to(std::back_inserter(text), "{:<6}{:>14}  {} {}\n", dtype_name(tensor.dtype),
                     tensor.bytes(), printable(tensor.name), shape_string(tensor.shape));
    }
  }
  return text;
}

void add_summary(const ModelSummary& summary, nlohmann::ordered_json& json) {
  if (summary.config) {
    json["architecture"] = family_of(summary.config->architecture).name;
    json["config"] = config_json(*summary.config);
    json["parameters"] = {{"total", summary.parameters.total},
                          {"touched_per_token", summary.parameters.touched_per_token}};
  }
  if (summary.drafter) {
    json["architecture"] = "dflash";
    json["config"] = drafter_json(*summary.drafter);
    json["parameters"] = {{"total", summary.drafter_parameters}};
  }
  json["problem"] = nullptr;
  if (!summary.problem.empty()) json["problem"] = summary.problem;
}

nlohmann::ordered_json to_json(const InspectReport& report) {
  nlohmann::ordered_json json = {{"path", report.checkpoint.path()}};
  add_summary(report, json);
  json["total_bytes"] = report.checkpoint.total_bytes();
  auto dtypes = dtype_totals(report.checkpoint).to_json();
  if (!dtypes.empty()) json["dtypes"] = std::move(dtypes);
  json["files"] = nlohmann::ordered_json::array();
  json["tensors"] = nlohmann::ordered_json::array();
  for (const SafetensorsFile& file : report.checkpoint.files()) {
    json["files"].push_back({{"name", file_name(file)}, {"metadata", file.metadata()}});
    for (const TensorView& tensor : file.tensors()) {
      json["tensors"].push_back({{"name", tensor.name},
                                 {"dtype", dtype_name(tensor.dtype)},
                                 {"shape", tensor.shape},
                                 {"bytes", tensor.bytes()},
                                 {"file", file_name(file)}});
    }
  }
  return json;
}

}  // namespace kakeya::cli
