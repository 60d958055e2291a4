// `kakeya quantize`: a model or a drafter with fewer bits a weight.
#include <fmt/format.h>

#include <memory>

#include "base/status.h"
#include "command.h"
#include "conversion.h"
#include "convert/mlx_checkpoint.h"

namespace kakeya::cli {

namespace {

struct QuantizeFlags {
  int bits = 4;
  int group_size = 64;
  std::string type = "q4_k_m";
  bool affine_flags = false;  // --bits or --group-size was given
  bool type_flag = false;
  ConversionFlags conversion;
};

Result<ConversionReport> quantize(const QuantizeFlags& flags, Conversion& conversion) {
  const ConversionFlags& paths = flags.conversion;
  if (is_gguf_target(paths)) {
    if (flags.affine_flags) {
      return invalid_argument("--bits and --group-size are for folders; a .gguf file has --type");
    }
    const auto type = find_gguf_file_type(flags.type);
    if (!type) {
      return invalid_argument("--type: expected one of {}, got {}", gguf_file_type_names(),
                              flags.type);
    }
    return convert_to_gguf(paths.source, paths.target, *type, conversion.gguf_options(),
                           conversion.budget());
  }
  if (flags.type_flag) {
    return invalid_argument("--type is for a TARGET that ends in .gguf; a folder has --bits");
  }
  KAKEYA_TRY(check_folder_flags(paths));
  return quantize_to_mlx(paths.source, paths.target,
                         {.bits = flags.bits, .group_size = flags.group_size},
                         conversion.folder_options(), conversion.budget());
}

}  // namespace

void add_quantize_command(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<QuantizeFlags>();
  CLI::App* command = app.add_subcommand("quantize", "Write a model with fewer bits a weight");
  add_conversion_flags(*command, flags->conversion);
  const CLI::Option* bits =
      command
          ->add_option("--bits", flags->bits,
                       "Folders: bits of a weight, 2, 3, 4 (the default), 5, 6 or 8. Routers of "
                       "experts always have 8")
          ->check(CLI::IsMember({2, 3, 4, 5, 6, 8}))
          ->type_name("N");
  const CLI::Option* group_size =
      command
          ->add_option("--group-size", flags->group_size,
                       "Folders: weights that share a scale and a bias, 32, 64 (the default) or "
                       "128; fewer is more exact and larger")
          ->check(CLI::IsMember({32, 64, 128}))
          ->type_name("N");
  const CLI::Option* type =
      command
          ->add_option("--type", flags->type,
                       fmt::format("GGUF: {} (default: q4_k_m)", gguf_file_type_names()))
          ->type_name("TYPE");
  command->footer(
      "A folder gets MLX's affine format under the names of mlx-lm; a .gguf file gets the formats\n"
      "of llama.cpp, its tokenizer and its template. 4 bits in groups of 64 take 4.5 bits a "
      "weight,\n"
      "q4_k_m about 4.9; norms and other vectors stay as they are. docs/quantization.md has\n"
      "sizes and errors.\n\n"
      "Examples:\n"
      "  kakeya quantize gemma-4-26B-A4B-it gemma-4-26b-4bit\n"
      "  kakeya quantize DIR OUT --bits 8                    almost no loss, half the size\n"
      "  kakeya quantize gemma-4-26B-A4B-it-DFlash OUT       a drafter; its target stays exact\n"
      "  kakeya quantize gemma-4-26B-A4B-it gemma.gguf --type q8_0\n"
      "  kakeya run --model gemma-4-26b-4bit --prompt \"Why is the sky blue?\"");
  command->callback([=, &exit_code] {
    flags->affine_flags = bits->count() > 0 || group_size->count() > 0;
    flags->type_flag = type->count() > 0;
    Conversion conversion(flags->conversion, "quantising");
    exit_code = conversion.finish(quantize(*flags, conversion));
  });
}

}  // namespace kakeya::cli
