#include "bench/bench_flags.h"

#include <fmt/format.h>

#include <cctype>

#include "base/status.h"
#include "cli/failure.h"
#include "cli/internal_engine.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "formats/named_shapes.h"
#include "model/random_source.h"

namespace kakeya::cli {

namespace {

// "q4_0" for Q4_0, as files and commands are usually named.
std::string lower_case(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

}  // namespace

Result<std::optional<QuantizedFormat>> random_format(const std::string& name) {
  std::string names = "bf16";
  if (name == names) return std::optional<QuantizedFormat>();
  for (const QuantizedFormat format : random_formats()) {
    const std::string known = lower_case(quantized_format_name(format));
    if (name == known) return std::optional(format);
    names += ", " + known;
  }
  return invalid_argument("--weights must be one of {} but is '{}'", names, name);
}

// Random weights of --shape, or the model of --model.
Result<std::unique_ptr<EngineImpl>> open_bench_engine(const BenchFlags& flags,
                                                      bool with_drafter,
                                                      const BackendWrapper& wrapper) {
  if (flags.shape.empty()) return open_internal_engine(flags.model, wrapper);
  if (!flags.model.model.empty()) return bad_usage("--shape and --model exclude each other");
  ModelFlags model = flags.model;
  model.model = "/";  // no name is looked up, no folder read
  KAKEYA_ASSIGN_OR_RETURN(const ModelConfig config, named_shape(flags.shape, flags.layers));
  KAKEYA_ASSIGN_OR_RETURN(EngineOptions options, engine_options(model));
  options.model_dir = "none";
  options.session.context = 1024;  // what the passes need, not what users have
  ProgressBar bar("making random weights");
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) { bar.update(done, total); };
  std::optional<DrafterConfig> drafter;
  if (with_drafter) {
    KAKEYA_ASSIGN_OR_RETURN(drafter, named_drafter_shape(flags.shape, flags.layers));
  }
  KAKEYA_ASSIGN_OR_RETURN(const auto format, random_format(flags.weights));
  return EngineImpl::open_random(config, options, drafter, format, wrapper);
}

std::string subject(const BenchFlags& flags) {
  if (flags.shape.empty()) return flags.model.model.empty() ? "demo model" : flags.model.model;
  std::string text = flags.shape;
  if (flags.layers > 0) text += fmt::format(", {} layers", flags.layers);
  if (flags.weights != "bf16") text += ", " + flags.weights;
  return text;
}

nlohmann::ordered_json header_json(const BenchFlags& flags,
                                   const EngineImpl& engine,
                                   const char* name) {
  nlohmann::ordered_json json =
      provenance_json(fmt::format("kakeya.bench.{}/1", name), flags.conditions, engine,
                      subject(flags), flags.model.compute);
  json["bench"] = name;
  return json;
}

void print_header(const BenchFlags& flags, const EngineImpl& engine, const char* name) {
  print("{} of {}; {}, {} threads, compute {}; medians of {} repetitions\n", name, subject(flags),
        engine.backend_name(), engine.num_threads(), flags.model.compute,
        flags.options.repetitions);
}

CLI::Option* add_weights_flag(CLI::App& command, BenchFlags& flags) {
  return command
      .add_option("--weights", flags.weights,
                  "Type of the random matrices: bf16 (default), q4_0, q8_0, q4_k, q6_k")
      ->type_name("TYPE");
}

void add_shape_flags(CLI::App& command, BenchFlags& flags) {
  std::string names;
  for (const std::string_view name : shape_names()) names += " " + std::string(name);
  CLI::Option* const shape =
      command.add_option("--shape", flags.shape, "Random weights of a published shape:" + names)
          ->type_name("NAME");
  // A model has its own layers and types: its times would be quoted as those of the flags.
  command.add_option("--layers", flags.layers, "Only the first N layers of --shape")
      ->check(CLI::Range(1, 1000))
      ->needs(shape)
      ->type_name("N");
  add_weights_flag(command, flags)->needs(shape);
  command.add_flag("--json", flags.json, "Print one JSON object");
}

void add_pass_flags(CLI::App& command, BenchFlags& flags) {
  add_shape_flags(command, flags);
  command.add_option("--repetitions", flags.options.repetitions, "Repetitions (default: 7)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  command
      .add_option("--context", flags.options.context,
                  "Tokens in the cache before measuring (default: 64)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  add_model_flags(command, flags.model);
}

}  // namespace kakeya::cli
