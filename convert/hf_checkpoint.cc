#include "convert/hf_checkpoint.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/status.h"

namespace kakeya {

namespace {

using Json = nlohmann::ordered_json;

std::string prefix_of(const SourceModel& model, const Json& config, const std::string& name) {
  if (model.drafter || name.starts_with("lm_head.")) return "";
  return config.contains("text_config") ? "model.language_model." : "model.";
}

// The type's name as transformers spells it.
std::string torch_name(DType dtype) {
  if (dtype == DType::kF32) return "float32";
  return dtype == DType::kF16 ? "float16" : "bfloat16";
}

Json hf_config(Json config, std::optional<DType> dtype) {
  config.erase("quantization");
  config.erase("quantization_config");
  if (!dtype) return config;
  for (Json* part : {&config, config.contains("text_config") ? &config["text_config"] : nullptr}) {
    if (part == nullptr) continue;
    for (const char* key : {"dtype", "torch_dtype"}) {
      if (part->contains(key)) (*part)[key] = torch_name(*dtype);
    }
  }
  return config;
}

}  // namespace

Result<ConversionReport> convert_to_hf(const std::string& source,
                                       const std::string& target,
                                       std::optional<DType> dtype,
                                       const FolderOptions& options,
                                       MemoryBudget& budget) {
  KAKEYA_ASSIGN_OR_RETURN(const SourceModel model, open_source_model(source));
  // It has been parsed with checks before.
  Json config = Json::parse(model.config_json);
  if (model.gguf) config["dtype"] = torch_name(largest_tensor(model).rows.dtype());
  std::vector<OutputTensor> tensors;
  for (const NamedTensor& tensor : model.tensors) {
    if (tensor.rows.is_quantized() && !dtype) {
      return invalid_argument(
          "{}: {} is quantised: expected a type to decode it to (convert_to_hf::dtype)", source,
          tensor.name);
    }
    TensorRows rows = tensor.rows_of_safetensors();
    const DType own = rows.dtype();
    tensors.push_back({prefix_of(model, config, tensor.name) + tensor.name, std::move(rows),
                       dtype.value_or(own)});
  }
  FolderOptions published = options;
  published.writer.format = "pt";
  return write_model_folder(model, tensors, hf_config(config, dtype).dump(2) + "\n", target,
                            published, budget);
}

}  // namespace kakeya
