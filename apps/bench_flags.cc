#include "bench_flags.h"

#include <fmt/format.h>

#include "base/status.h"
#include "formats/named_shapes.h"
#include "report.h"
#include "terminal.h"

namespace kakeya::cli {

// Random weights of --shape, or the model of --model.
Result<std::unique_ptr<EngineImpl>> open_bench_engine(const BenchFlags& flags, bool with_drafter) {
  if (flags.shape.empty()) return open_engine(flags.model);
  ModelFlags model = flags.model;
  model.model = "none";  // no folder is read
  KAKEYA_ASSIGN_OR_RETURN(const ModelConfig config, named_shape(flags.shape, flags.layers));
  KAKEYA_ASSIGN_OR_RETURN(EngineOptions options, engine_options(model));
  options.session.context = 1024;  // what the passes need, not what users have
  ProgressBar bar("making random weights");
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) { bar.update(done, total); };
  std::optional<DrafterConfig> drafter;
  if (with_drafter) {
    KAKEYA_ASSIGN_OR_RETURN(drafter, named_drafter_shape(flags.shape, flags.layers));
  }
  return EngineImpl::open_random(config, options, drafter);
}

std::string subject(const BenchFlags& flags) {
  if (flags.shape.empty()) return flags.model.model.empty() ? "demo model" : flags.model.model;
  return flags.layers > 0 ? fmt::format("{}, {} layers", flags.shape, flags.layers) : flags.shape;
}

nlohmann::ordered_json header_json(const BenchFlags& flags,
                                   const EngineImpl& engine,
                                   const char* name) {
  return {{"bench", name},
          {"model", subject(flags)},
          {"backend", engine.backend_name()},
          {"threads", engine.num_threads()},
          {"compute", flags.model.compute}};
}

void print_header(const BenchFlags& flags, const EngineImpl& engine, const char* name) {
  fmt::print("{} of {}; {}, {} threads, compute {}; medians of {} repetitions\n", name,
             subject(flags), engine.backend_name(), engine.num_threads(), flags.model.compute,
             flags.options.repetitions);
}

void add_shape_flags(CLI::App& command, BenchFlags& flags) {
  std::string names;
  for (const std::string_view name : shape_names()) names += " " + std::string(name);
  command.add_option("--shape", flags.shape, "Random weights of a published shape:" + names)
      ->type_name("NAME");
  command.add_option("--layers", flags.layers, "Only the first N layers of --shape")
      ->type_name("N");
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
