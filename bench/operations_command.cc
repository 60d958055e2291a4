// kakeya bench operations: where a pass spends its time.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "bench/bench_flags.h"
#include "bench/model_bench.h"
#include "bench/timed_backend.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/terminal.h"

namespace kakeya::cli {
namespace {

double gb_per_s(const bench::OperationTimes& operation) {
  return operation.seconds > 0.0 ? 1e-9 * operation.bytes / operation.seconds : 0.0;
}

// The seconds of a pass between its operations.
double other_seconds(const bench::OperationsResult& result) {
  double seconds = result.pass.seconds;
  for (const bench::OperationTimes& operation : result.operations) seconds -= operation.seconds;
  return seconds;
}

void print_operations(const bench::OperationsResult& result) {
  const double probe = result.pass.probe_gb_per_s;
  print("{:<32} {:>6} {:>10} {:>7} {:>9} {:>8} {:>7}\n", "operation", "calls", "ms", "share", "MB",
        "GB/s", "%probe");
  for (const bench::OperationTimes& operation : result.operations) {
    print("{:<32} {:>6} {:>10.3f} {:>6.1f}%", operation.name, operation.calls,
          1e3 * operation.seconds, 100.0 * operation.seconds / result.pass.seconds);
    if (operation.bytes > 0.0) {
      print(" {:>9.1f} {:>8.1f} {:>6.0f}%", 1e-6 * operation.bytes, gb_per_s(operation),
            100.0 * gb_per_s(operation) / probe);
    }
    print("\n");
  }
  const double other = other_seconds(result);
  print("{:<32} {:>6} {:>10.3f} {:>6.1f}%\n", "between operations", "", 1e3 * other,
        100.0 * other / result.pass.seconds);
  print("a pass of {} rows: {:.3f} ms, {:.1f} MB, {:.0f}% of the probe of {:.1f} GB/s\n",
        result.pass.rows, 1e3 * result.pass.seconds, 1e-6 * result.pass.bytes,
        100e-9 * result.pass.bytes / result.pass.seconds / probe, probe);
}

nlohmann::ordered_json operations_json(const BenchFlags& flags,
                                       const EngineImpl& engine,
                                       const bench::OperationsResult& result) {
  nlohmann::ordered_json json = header_json(flags, engine, "operations");
  json["rows"] = result.pass.rows;
  json["seconds"] = result.pass.seconds;
  json["sample_seconds"] = result.pass.sample_seconds;
  json["bytes"] = result.pass.bytes;
  json["probe_gb_per_s"] = result.pass.probe_gb_per_s;
  for (const bench::OperationTimes& operation : result.operations) {
    json["operations"].push_back({{"name", operation.name},
                                  {"calls", operation.calls},
                                  {"seconds", operation.seconds},
                                  {"bytes", operation.bytes},
                                  {"gb_per_s", gb_per_s(operation)}});
  }
  json["other_seconds"] = other_seconds(result);
  return json;
}

int operations_bench(BenchFlags& flags) {
  bench::TimedBackend* timed = nullptr;
  const BackendWrapper wrapper = [&](std::unique_ptr<Backend> inner) {
    auto backend = std::make_unique<bench::TimedBackend>(std::move(inner));
    timed = backend.get();
    return backend;
  };
  auto engine = open_bench_engine(flags, false, wrapper);
  if (!engine) return report(engine.error());
  Result<bench::OperationsResult> result;
  {
    ProgressBar bar("measuring");
    flags.options.on_progress = [&](int done, int total) {
      bar.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
    };
    result = bench::bench_operations(**engine, *timed, flags.options);
  }
  if (!result) return report(result.error());
  if (flags.json) {
    print_json(operations_json(flags, **engine, *result));
  } else {
    print_header(flags, **engine, "operations");
    print_operations(*result);
  }
  return kExitOk;
}

}  // namespace

void add_operations_bench(CLI::App& bench, int& exit_code) {
  CLI::App* command = bench.add_subcommand("operations", "Where a pass spends its time");
  auto flags = std::make_shared<BenchFlags>();
  flags->options.rows = 1;
  command->add_option("--rows", flags->options.rows, "Rows of a pass (default: 1)")
      ->check(CLI::Range(1, 64));
  command->add_option("--steps", flags->options.steps, "Passes of a repetition (default: 8)")
      ->check(CLI::Range(1, 100000));
  add_pass_flags(*command, *flags);
  command->footer(
      "Taking the time of each operation costs a pass a few microseconds; the memory that an "
      "operation reads is compared with the bandwidth probed in the same second.\n"
      "Examples:\n"
      "  kakeya bench operations --shape gemma4-26b-a4b --layers 6 --weights q4_0\n"
      "  kakeya bench operations --rows 8");
  command->callback([flags, &exit_code] { exit_code = operations_bench(*flags); });
}

}  // namespace kakeya::cli
