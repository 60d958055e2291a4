// kakeya bench: how fast, beside what the machine can do at the same moment.
#include "bench/bench_command.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "backend/cpu/instruction_set.h"
#include "backend/cpu/probe.h"
#include "base/status.h"
#include "bench/bench_flags.h"
#include "bench/kernel_bench.h"
#include "bench/model_bench.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/terminal.h"

namespace kakeya::cli {
namespace {

nlohmann::ordered_json pass_json(const bench::PassResult& pass) {
  return {{"rows", pass.rows},
          {"seconds", pass.seconds},
          {"min_seconds", pass.min_seconds},
          {"max_seconds", pass.max_seconds},
          {"tokens_per_second", static_cast<double>(pass.rows) / pass.seconds},
          {"bytes", pass.bytes},
          {"gb_per_s", pass.bytes * 1e-9 / pass.seconds},
          {"probe_gb_per_s", pass.probe_gb_per_s},
          {"percent_of_probe", pass.percent_of_probe},
          {"gflop_per_s", pass.gflop / pass.seconds},
          {"distinct_experts", pass.distinct_experts},
          {"sample_seconds", pass.sample_seconds},
          {"sample_probe_gb_per_s", pass.sample_probes}};
}

void print_pass_header() {
  print("{:>5} {:>10} {:>19} {:>10} {:>8} {:>8} {:>8} {:>7} {:>9} {:>8}\n", "rows", "ms",
        "(min - max)", "tokens/s", "GB", "GB/s", "probe", "%probe", "GFLOP/s", "experts");
}

void print_pass(const bench::PassResult& pass) {
  print("{:>5} {:>10.2f} {:>19} {:>10.1f} {:>8.3f} {:>8.1f} {:>8.1f} {:>6.0f}% {:>9.0f} {:>8.1f}\n",
        pass.rows, 1e3 * pass.seconds,
        fmt::format("({:.2f} - {:.2f})", 1e3 * pass.min_seconds, 1e3 * pass.max_seconds),
        static_cast<double>(pass.rows) / pass.seconds, 1e-9 * pass.bytes,
        1e-9 * pass.bytes / pass.seconds, pass.probe_gb_per_s, pass.percent_of_probe,
        pass.gflop / pass.seconds, pass.distinct_experts);
}

// Runs one kind of pass and prints its rows. `run` gives the results.
template <typename Run>
int pass_bench(BenchFlags& flags, const char* name, Run&& run) {
  auto engine = open_bench_engine(flags);
  if (!engine) return report(engine.error());
  Result<std::vector<bench::PassResult>> passes;
  {
    ProgressBar bar("measuring");
    flags.options.on_progress = [&](int done, int total) {
      bar.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
    };
    passes = run(**engine, flags.options);
  }
  if (!passes) return report(passes.error());
  if (flags.json) {
    nlohmann::ordered_json json = header_json(flags, **engine, name);
    for (const bench::PassResult& pass : *passes) json["passes"].push_back(pass_json(pass));
    print_json(json);
    return kExitOk;
  }
  print_header(flags, **engine, name);
  print_pass_header();
  for (const bench::PassResult& pass : *passes) print_pass(pass);
  return kExitOk;
}

Result<std::vector<bench::PassResult>> one(Result<bench::PassResult> pass) {
  if (!pass) return Unexpected(pass.error());
  return std::vector<bench::PassResult>{*pass};
}

int decode_bench(BenchFlags& flags) {
  return pass_bench(flags, "decode", [](EngineImpl& engine, const auto& options) {
    return one(bench::bench_decode(engine, options));
  });
}

int verify_bench(BenchFlags& flags) {
  double ratio = 0.0;
  const int code = pass_bench(flags, "verify", [&](EngineImpl& engine, const auto& options) {
    auto passes = bench::bench_verify(engine, options);
    if (passes) ratio = passes->back().seconds / passes->front().seconds;
    return passes;
  });
  if (code == kExitOk && !flags.json) {
    print("{} rows cost {:.2f} times {} row\n", flags.options.verify_rows.back(), ratio,
          flags.options.verify_rows.front());
  }
  return code;
}

int prefill_bench(BenchFlags& flags) {
  double rate = 0.0;
  const int code = pass_bench(flags, "prefill", [&](EngineImpl& engine, const auto& options) {
    auto passes = one(bench::bench_prefill(engine, options));
    if (passes) rate = passes->front().gflop / passes->front().seconds;
    return passes;
  });
  if (code != kExitOk || flags.json || !flags.model.backend.starts_with("cpu")) return code;
  const auto kernels = cpu::kernels_of_backend(flags.model.backend);
  if (!kernels) return report(kernels.error());
  ThreadPool pool({.num_threads = flags.model.threads});
  const double peak = cpu::measure_bf16_peak(pool, **kernels, 1.0);
  print("{:.0f} GFLOP/s is {:.0f}% of the bf16 peak of {:.0f} GFLOP/s\n", rate, 100.0 * rate / peak,
        peak);
  return code;
}

int bandwidth_bench(const BenchFlags& flags) {
  ThreadPool pool({.num_threads = flags.model.threads});
  ThreadPool one_thread({.num_threads = 1});
  const double all = cpu::measure_read_bandwidth(pool, flags.seconds);
  const double one = cpu::measure_read_bandwidth(one_thread, flags.seconds);
  if (flags.json) {
    nlohmann::ordered_json json = provenance_json("kakeya.bench.bandwidth/1", flags.conditions);
    json["bench"] = "bandwidth";
    json["threads"] = pool.num_threads();
    json["read_gb_per_s"] = all;
    json["one_thread_gb_per_s"] = one;
    print_json(json);
  } else {
    print("reading memory: {:.1f} GB/s with {} threads, {:.1f} GB/s with one\n", all,
          pool.num_threads(), one);
  }
  return kExitOk;
}

// Sets a number that is known: 0 is not.
void set_known(nlohmann::ordered_json& json, const char* name, double value) {
  if (value > 0.0) json[name] = value;
}

int kernel_bench(const BenchFlags& flags, bench::KernelBenchOptions& options) {
  const auto weights = random_format(flags.weights);
  if (!weights) return report(weights.error());
  options.weights = *weights;
  const auto measured = bench::run_kernel_bench(options);
  if (!measured) return report(measured.error());
  if (!flags.json) {
    print("{}", bench::format_kernel_report(*measured));
    return kExitOk;
  }
  nlohmann::ordered_json json = provenance_json("kakeya.bench.kernels/1", flags.conditions);
  json["bench"] = "kernels";
  json["backend"] = measured->backend;
  json["threads"] = measured->num_threads;
  set_known(json, "bf16_peak_gflops", measured->bf16_peak_gflops);
  set_known(json, "f32_peak_gflops", measured->f32_peak_gflops);
  for (const bench::KernelResult& result : measured->results) {
    nlohmann::ordered_json& row = json["results"].emplace_back();
    row["name"] = result.name;
    row["rows"] = result.rows;
    row["milliseconds"] = result.milliseconds;
    row["bytes"] = result.bytes;
    row["gb_per_s"] = result.gigabytes_per_second;
    set_known(row, "percent_of_probe", result.bandwidth_percent);
    row["gflop_per_s"] = result.gflops;
    set_known(row, "percent_of_peak", result.peak_percent);
    set_known(row, "multiplications_per_cycle", result.multiplications_per_cycle);
  }
  print_json(json);
  return kExitOk;
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("bench", "Measure speed beside the machine's bandwidth");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  kakeya bench decode\n"
      "  kakeya bench verify --shape gemma4-26b-a4b --layers 6\n"
      "  kakeya bench attention --context 16384,65536 --rows 1,8\n"
      "  kakeya bench speculative --acceptance 0.8,0.66,0.55,0.46\n"
      "  kakeya bench batch --sessions 1,8,32\n"
      "  kakeya bench bandwidth\n"
      "  kakeya bench kernels --backend cuda --weights q4_0 --filter experts\n"
      "  kakeya bench kernels --filter 'in cache'");
  auto flags = std::make_shared<BenchFlags>();

  CLI::App* decode = command->add_subcommand("decode", "One token at a time");
  decode->add_option("--steps", flags->options.steps, "Passes of a repetition (default: 8)")
      ->check(CLI::Range(1, 100000));
  add_pass_flags(*decode, *flags);
  decode->callback([flags, &exit_code] { exit_code = decode_bench(*flags); });

  CLI::App* verify = command->add_subcommand("verify", "Blocks of several rows in one pass");
  verify->add_option("--rows", flags->options.verify_rows, "Block sizes (default: 1 2 4 8 16)")
      ->check(CLI::Range(1, 64));
  add_pass_flags(*verify, *flags);
  verify->callback([flags, &exit_code] { exit_code = verify_bench(*flags); });

  CLI::App* prefill = command->add_subcommand("prefill", "A prompt in one pass");
  prefill->add_option("--rows", flags->options.rows, "Tokens of the prompt (default: 512)")
      ->check(CLI::Range(1, 8192));
  add_pass_flags(*prefill, *flags);
  prefill->callback([flags, &exit_code] { exit_code = prefill_bench(*flags); });

  add_attention_bench(*command, exit_code);
  add_grammar_bench(*command, exit_code);
  add_batch_bench(*command, exit_code);
  add_speculative_bench(*command, exit_code);
  add_operations_bench(*command, exit_code);
  add_prompt_cache_bench(*command, exit_code);
  add_long_session_bench(*command, exit_code);

  CLI::App* bandwidth = command->add_subcommand("bandwidth", "How fast this machine reads memory");
  bandwidth->add_option("--seconds", flags->seconds, "How long to measure (default: 2)")
      ->check(CLI::Range(0.1, 600.0));
  bandwidth->add_option("-t,--threads", flags->model.threads, "Threads (default: one for each CPU)")
      ->check(CLI::Range(0, 1024));
  bandwidth->add_flag("--json", flags->json, "Print one JSON object");
  bandwidth->callback([flags, &exit_code] { exit_code = bandwidth_bench(*flags); });

  CLI::App* kernels = command->add_subcommand("kernels", "Single operations on real shapes");
  auto options = std::make_shared<bench::KernelBenchOptions>();
  kernels->add_option(
      "--backend", options->backend,
      "cpu (default), cpu/NAME of an instruction set that the doctor lists, cuda, or "
      "another backend");
  add_weights_flag(*kernels, *flags);
  kernels->add_option("-t,--threads", options->num_threads, "Threads (default: one for each CPU)")
      ->check(CLI::Range(0, 1024));
  kernels->add_option("--filter", options->filter, "Only cases whose name contains this");
  kernels->add_option("--seconds", options->seconds, "Of measuring, for each case (default: 0.5)")
      ->check(CLI::Range(0.01, 60.0));
  kernels->add_flag("--json", flags->json, "Print one JSON object");
  kernels->callback([flags, options, &exit_code] { exit_code = kernel_bench(*flags, *options); });
}

}  // namespace kakeya::cli
