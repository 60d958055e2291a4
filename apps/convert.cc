// `kakeya convert`: a model or a drafter in another container, its numbers kept.
#include <fmt/format.h>

#include <memory>

#include "base/status.h"
#include "cli/command.h"
#include "commands.h"
#include "conversion.h"
#include "convert/hf_checkpoint.h"

namespace kakeya::cli {

namespace {

struct ConvertFlags {
  std::string type;  // empty: as it is
  ConversionFlags conversion;
};

std::optional<DType> parse_type(const std::string& name) {
  if (name == "f32") return DType::kF32;
  if (name == "f16") return DType::kF16;
  if (name == "bf16") return DType::kBF16;
  return std::nullopt;
}

std::string name_of(DType dtype) {
  if (dtype == DType::kF32) return "f32";
  return dtype == DType::kF16 ? "f16" : "bf16";
}

// The type of the numbers of the largest tensor. Errors: kInvalidArgument for a quantised model.
Result<std::string> own_type(const std::string& source) {
  KAKEYA_ASSIGN_OR_RETURN(const SourceModel model, open_source_model(source));
  const TensorRows& largest = largest_tensor(model).rows;
  if (!largest.is_quantized()) return name_of(largest.dtype());
  return invalid_argument("{}: the model is quantised: expected a type to decode it to (--type)",
                          source);
}

Result<ConversionReport> convert(ConvertFlags flags, Conversion& conversion) {
  KAKEYA_TRY(find_source(flags.conversion));
  const ConversionFlags& paths = flags.conversion;
  if (!is_gguf_target(paths)) {
    KAKEYA_TRY(check_folder_flags(paths));
    return convert_to_hf(paths.source, paths.target, parse_type(flags.type),
                         conversion.folder_options(), conversion.budget());
  }
  std::string type = flags.type;
  if (type.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(type, own_type(paths.source));
  }
  return convert_to_gguf(paths.source, paths.target, *find_gguf_file_type(type),
                         conversion.gguf_options(), conversion.budget());
}

}  // namespace

void add_convert_command(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<ConvertFlags>();
  CLI::App* command =
      app.add_subcommand("convert", "Write a model in another container, its numbers kept");
  add_conversion_flags(*command, flags->conversion);
  command
      ->add_option("--type", flags->type,
                   "bf16, f16 or f32 for all matrices (default: as they are; needed to decode a "
                   "quantised model)")
      ->check(CLI::IsMember({"bf16", "f16", "f32"}))
      ->type_name("TYPE");
  command->footer(
      "A folder gets safetensors under the names of Hugging Face; a .gguf file what llama.cpp\n"
      "loads. Norms, routers and scales are F32 in GGUF files. `kakeya quantize` makes models\n"
      "smaller.\n\n"
      "Examples:\n"
      "  kakeya convert gemma-4-E2B-it gemma-4-e2b.gguf\n"
      "  kakeya convert gemma-4-26B-A4B-it-DFlash drafter.gguf --model gemma-4-26B-A4B-it\n"
      "  kakeya convert gemma-4-26b-4bit OUT --type bf16     an MLX model, decoded\n"
      "  kakeya convert gemma-4-26b-q4_0.gguf OUT --type bf16");
  command->callback([flags, &exit_code] {
    Conversion conversion(flags->conversion, "converting");
    exit_code = conversion.finish(convert(*flags, conversion));
  });
}

}  // namespace kakeya::cli
