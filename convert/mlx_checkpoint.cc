#include "convert/mlx_checkpoint.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/status.h"

namespace kakeya {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kExperts = ".experts.";
// In the place of an MLP, and what MLX calls them.
constexpr std::string_view kOnlyExperts = ".mlp.experts.";
constexpr std::string_view kOnlyExpertsOfMlx = ".mlp.switch_mlp.";

bool is_router(std::string_view name) {
  return name.ends_with(".router.proj.weight") || name.ends_with(".mlp.gate.weight");
}

// The format that mlx-lm quantises routers to, whatever the rest has: a wrong expert costs more
// than a few bits of a small matrix.
constexpr AffineFormat kRouterFormat = {.bits = 8, .group_size = 64};

// config.json has been parsed with checks before.
Json parse_config(const SourceModel& model) {
  return Json::parse(model.config_json);
}

// The prefix of the names of mlx-lm's model: a multimodal one holds the text model, and a drafter
// has no prefix.
std::string prefix_of(const SourceModel& model, bool head) {
  if (model.drafter) return "";
  const bool holds_text = parse_config(model).contains("text_config");
  return std::string(holds_text ? "language_model." : "") + (head ? "" : "model.");
}

// Matrices and embeddings: everything with rows that is a weight.
bool can_be_quantized(const std::string& name, const TensorRows& rows) {
  return name.ends_with(kWeightSuffix) && rows.shape().size() >= 2;
}

bool divides(const TensorRows& rows, AffineFormat format) {
  return rows.columns() % format.group_size == 0;
}

TensorEncoding encoding_of(const std::string& name,
                           const TensorRows& rows,
                           const std::optional<AffineFormat>& format) {
  if (!format || !can_be_quantized(name, rows) || !divides(rows, *format)) return rows.dtype();
  if (!is_router(name)) return *format;
  return divides(rows, kRouterFormat) ? TensorEncoding(kRouterFormat) : rows.dtype();
}

// The tensor as MLX names and holds it; fused experts become two.
std::vector<NamedTensor> renamed(const NamedTensor& tensor) {
  const std::size_t at = tensor.name.find(kExperts);
  if (at == std::string::npos) return {{tensor.name, tensor.rows_of_safetensors()}};
  const std::size_t only = tensor.name.find(kOnlyExperts);
  const std::string stem = only == std::string::npos
                               ? tensor.name.substr(0, at) + ".experts.switch_glu."
                               : tensor.name.substr(0, only) + std::string(kOnlyExpertsOfMlx);
  if (tensor.name.ends_with("down_proj")) return {{stem + "down_proj.weight", tensor.rows}};
  const std::int64_t half = tensor.rows.shape()[1] / 2;
  return {{stem + "gate_proj.weight", tensor.rows.slice(0, half)},
          {stem + "up_proj.weight", tensor.rows.slice(half, half)}};
}

std::string mlx_config(const SourceModel& model,
                       AffineFormat format,
                       std::span<const OutputTensor> tensors) {
  Json config = parse_config(model);
  Json quantization = {
      {"group_size", format.group_size}, {"bits", format.bits}, {"mode", "affine"}};
  for (const OutputTensor& tensor : tensors) {
    const auto* own = std::get_if<AffineFormat>(&tensor.encoding);
    if (own == nullptr || !is_router(tensor.name)) continue;
    const std::string path = tensor.name.substr(0, tensor.name.size() - kWeightSuffix.size());
    quantization[path] = {{"group_size", own->group_size}, {"bits", own->bits}};
  }
  config["quantization"] = quantization;
  config["quantization_config"] = quantization;
  return config.dump(2) + "\n";
}

}  // namespace

std::vector<OutputTensor> mlx_tensors(const SourceModel& model,
                                      const std::optional<AffineFormat>& format) {
  const std::string prefix = prefix_of(model, false);
  const std::string head_prefix = prefix_of(model, true);
  std::vector<OutputTensor> outputs;
  for (const NamedTensor& tensor : model.tensors) {
    for (NamedTensor& output : renamed(tensor)) {
      const TensorEncoding encoding = encoding_of(output.name, output.rows, format);
      const std::string& own = output.name.starts_with("lm_head.") ? head_prefix : prefix;
      outputs.push_back({own + output.name, std::move(output.rows), encoding});
    }
  }
  return outputs;
}

Result<ConversionReport> quantize_to_mlx(const std::string& source,
                                         const std::string& target,
                                         AffineFormat format,
                                         const FolderOptions& options,
                                         MemoryBudget& budget) {
  if (!affine_format_exists(format)) {
    return invalid_argument(
        "expected 2, 3, 4, 5, 6 or 8 bits and groups of 32, 64 or 128, got {} bits and groups of "
        "{}",
        format.bits, format.group_size);
  }
  KAKEYA_ASSIGN_OR_RETURN(const SourceModel model, open_source_model(source));
  KAKEYA_TRY(check_unquantized(model));
  const std::vector<OutputTensor> tensors = mlx_tensors(model, format);
  return write_model_folder(model, tensors, mlx_config(model, format, tensors), target, options,
                            budget);
}

}  // namespace kakeya
