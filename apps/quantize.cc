// `kakeya quantize`: a model or a drafter with fewer bits a weight.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "base/status.h"
#include "cli/command.h"
#include "commands.h"
#include "conversion.h"
#include "convert/measure_importance.h"
#include "convert/mlx_checkpoint.h"
#include "quantize_texts.h"

namespace kakeya::cli {

namespace {

struct QuantizeFlags {
  int bits = 4;
  int group_size = 64;
  std::string type = "q4_k_m";
  bool affine_flags = false;  // --bits or --group-size was given
  bool type_flag = false;
  TextFlags texts;
  ConversionFlags conversion;
};

Status check_flags(const QuantizeFlags& flags) {
  if (!is_gguf_target(flags.conversion)) {
    if (flags.type_flag) {
      return invalid_argument("--type is for a TARGET that ends in .gguf; a folder has --bits");
    }
    return check_folder_flags(flags.conversion);
  }
  if (flags.affine_flags) {
    return invalid_argument("--bits and --group-size are for folders; a .gguf file has --type");
  }
  const auto type = find_gguf_file_type(flags.type);
  if (!type) {
    return invalid_argument("--type: expected one of {}, got {}", gguf_file_type_names(),
                            flags.type);
  }
  if (!flags.texts.calibration.empty() && std::holds_alternative<DType>(type->encoding)) {
    return invalid_argument("--calibration: expected a --type that is quantised, got {}",
                            flags.type);
  }
  return {};
}

// `importance` may be null.
Result<ConversionReport> write_model(const QuantizeFlags& flags,
                                     const Importance* importance,
                                     Conversion& conversion) {
  const ConversionFlags& paths = flags.conversion;
  if (is_gguf_target(paths)) {
    GgufOptions options = conversion.gguf_options();
    options.importance = importance;
    return convert_to_gguf(paths.source, paths.target, *find_gguf_file_type(flags.type), options,
                           conversion.budget());
  }
  FolderOptions options = conversion.folder_options();
  options.writer.importance = importance;
  return quantize_to_mlx(paths.source, paths.target,
                         {.bits = flags.bits, .group_size = flags.group_size}, options,
                         conversion.budget());
}

// Checks early what writing would refuse after a long calibration.
Status check_paths(const ConversionFlags& paths) {
  KAKEYA_ASSIGN_OR_RETURN(const SourceModel model, open_source_model(paths.source));
  KAKEYA_TRY(check_unquantized(model));
  std::error_code ignored;
  if (paths.force || !std::filesystem::exists(paths.target, ignored)) return {};
  return error(StatusCode::kFailedPrecondition,
               "{}: expected nothing of this name, got something (--force replaces a model)",
               paths.target);
}

Result<std::optional<Importance>> calibrate(const QuantizeFlags& flags,
                                            const TextPart& text,
                                            Conversion& conversion) {
  if (text.windows.empty()) return std::nullopt;
  CalibrationOptions options;
  options.backend.threads.num_threads = flags.conversion.threads;
  options.on_load = conversion.begin_stage("loading");
  options.progress = [&conversion, stage = ProgressCallback()](std::uint64_t done,
                                                               std::uint64_t total) mutable {
    if (!stage) stage = conversion.begin_stage("calibrating");
    return stage(done, total);
  };
  KAKEYA_ASSIGN_OR_RETURN(
      Importance importance,
      measure_importance(flags.conversion.source, text.windows, options, conversion.budget()));
  return importance;
}

// `more` gets what the texts have to say.
Result<ConversionReport> quantize(QuantizeFlags flags, Conversion& conversion, ReportPart& more) {
  KAKEYA_TRY(check_flags(flags));
  KAKEYA_TRY(find_source(flags.conversion));
  const ConversionFlags& paths = flags.conversion;
  if (!flags.texts.any()) return write_model(flags, nullptr, conversion);
  KAKEYA_TRY(check_paths(paths));
  KAKEYA_ASSIGN_OR_RETURN(const QuantizeTexts texts, read_texts(paths.source, flags.texts));
  KAKEYA_ASSIGN_OR_RETURN(auto importance, calibrate(flags, texts.calibration, conversion));
  KAKEYA_ASSIGN_OR_RETURN(const ConversionReport report,
                          write_model(flags, importance ? &*importance : nullptr, conversion));
  importance.reset();
  const auto statistics = measure_outputs(paths, texts.report, conversion);
  if (!statistics) {
    return Unexpected(
        statistics.error().with_context(paths.target + " is written, but not measured"));
  }
  more = describe_outputs(texts, *statistics);
  return report;
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
          ->transform([](std::string name) { return CLI::detail::to_lower(std::move(name)); })
          ->type_name("TYPE");
  add_text_flags(*command, flags->texts);
  command->footer(
      "A folder gets MLX's affine format under the names of mlx-lm; a .gguf file gets the formats\n"
      "of llama.cpp, its tokenizer and its template. 4 bits in groups of 64 take 4.5 bits a "
      "weight,\n"
      "q4_k_m about 4.9; norms and other vectors stay as they are. docs/quantization.md has\n"
      "sizes and errors.\n\n"
      "--calibration loads SOURCE and runs a text through it: the result has the same size and\n"
      "format, and outputs nearer to SOURCE's. Measure both ways on a text that is not the\n"
      "calibration's: --report TEXT_FILE, with and without --calibration.\n\n"
      "Examples:\n"
      "  kakeya quantize gemma-4-26B-A4B-it gemma-4-26b-4bit\n"
      "  kakeya quantize DIR OUT --bits 8                    almost no loss, half the size\n"
      "  kakeya quantize gemma-4-26B-A4B-it-DFlash OUT       a drafter; its target stays exact\n"
      "  kakeya quantize gemma-4-26B-A4B-it gemma.gguf --type q8_0\n"
      "  kakeya quantize DIR OUT --calibration my-texts.txt\n"
      "  kakeya run --model gemma-4-26b-4bit --prompt \"Why is the sky blue?\"");
  command->callback([=, &exit_code] {
    flags->affine_flags = bits->count() > 0 || group_size->count() > 0;
    flags->type_flag = type->count() > 0;
    Conversion conversion(flags->conversion, "quantising");
    ReportPart more;
    const auto made = quantize(*flags, conversion, more);
    exit_code = conversion.finish(made, more);
  });
}

}  // namespace kakeya::cli
