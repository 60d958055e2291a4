// The common part of the subcommands of `kakeya bench`: what they measure and how they name it.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "bench/model_bench.h"
#include "cli/command.h"
#include "cli/provenance.h"
#include "runtime/engine_impl.h"

namespace kakeya::cli {

struct BenchFlags {
  ModelFlags model;
  std::string shape;
  std::int64_t layers = 0;
  std::string weights = "bf16";
  bool json = false;
  bench::ModelBenchOptions options;
  double seconds = 2.0;  // of bandwidth
  RunConditions conditions;
};

// Random weights of --shape, with its published drafter if asked for; or the model of --model.
// `wrapper`, if given, puts a backend around its own.
Result<std::unique_ptr<EngineImpl>> open_bench_engine(const BenchFlags& flags,
                                                      bool with_drafter = false,
                                                      const BackendWrapper& wrapper = {});

// "demo model", "gemma4-26b-a4b, 6 layers"
std::string subject(const BenchFlags& flags);

// The first fields of the JSON of a benchmark of a model, with schema "kakeya.bench.NAME/1", and
// the first line of its text.
nlohmann::ordered_json header_json(const BenchFlags& flags,
                                   const EngineImpl& engine,
                                   const char* name);
void print_header(const BenchFlags& flags, const EngineImpl& engine, const char* name);

// The format of a --weights; none: bf16. Errors: kInvalidArgument for another name.
Result<std::optional<QuantizedFormat>> random_format(const std::string& name);

// --weights
CLI::Option* add_weights_flag(CLI::App& command, BenchFlags& flags);
// --shape, --layers and --weights, which it needs, and --json.
void add_shape_flags(CLI::App& command, BenchFlags& flags);
// These, --repetitions, --context and those of the model.
void add_pass_flags(CLI::App& command, BenchFlags& flags);

// `bench attention`
void add_attention_bench(CLI::App& bench, int& exit_code);
// `bench batch`
void add_batch_bench(CLI::App& bench, int& exit_code);
// `bench grammar`
void add_grammar_bench(CLI::App& bench, int& exit_code);
// `bench long-session`
void add_long_session_bench(CLI::App& bench, int& exit_code);
// `bench operations`
void add_operations_bench(CLI::App& bench, int& exit_code);
// `bench prompt-cache`
void add_prompt_cache_bench(CLI::App& bench, int& exit_code);
// `bench speculative`
void add_speculative_bench(CLI::App& bench, int& exit_code);

}  // namespace kakeya::cli
