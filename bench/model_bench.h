// Benchmarks of whole forward passes: decode, prefill and verify. Every measurement stands beside
// the memory bandwidth probed in the same second, since that is what a shared machine changes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/timed_backend.h"
#include "runtime/engine_impl.h"

namespace kakeya::bench {

struct ModelBenchOptions {
  std::int64_t context = 64;  // tokens in the cache before measuring
  std::int64_t rows = 512;    // of prefill
  std::int64_t steps = 8;     // passes of one repetition
  int repetitions = 7;
  std::vector<std::int64_t> verify_rows = {1, 2, 4, 8, 16};
  std::function<void(int done, int total)> on_progress;  // may be empty
};

// One measured pass of `rows` rows; medians over the repetitions.
struct PassResult {
  std::int64_t rows = 1;
  double seconds = 0.0;
  double min_seconds = 0.0;
  double max_seconds = 0.0;
  double bytes = 0.0;             // weights and cache rows that one pass reads
  double probe_gb_per_s = 0.0;    // read bandwidth of the same second
  double percent_of_probe = 0.0;  // median of the repetitions' own ratios
  double gflop = 0.0;
  double distinct_experts = 0.0;  // of the last layer; 0 without experts
  // The samples of each repetition: its median pass, and the probe beside it.
  std::vector<double> sample_seconds;
  std::vector<double> sample_probes;
};

// One token at a time after `context` tokens.
Result<PassResult> bench_decode(EngineImpl& engine, const ModelBenchOptions& options);

// Blocks of several sizes at the same place, rolled back after each pass; the sizes alternate.
Result<std::vector<PassResult>> bench_verify(EngineImpl& engine, const ModelBenchOptions& options);

// options.rows new tokens in one pass.
Result<PassResult> bench_prefill(EngineImpl& engine, const ModelBenchOptions& options);

// Where passes of options.rows rows spend their time.
struct OperationsResult {
  PassResult pass;                         // seconds: mean of all passes
  std::vector<OperationTimes> operations;  // of a mean pass, the longest first
};

// `timed` is the backend of `engine`. One row: decoding after `context` tokens; more: blocks there,
// rolled back after each pass.
Result<OperationsResult> bench_operations(EngineImpl& engine,
                                          TimedBackend& timed,
                                          const ModelBenchOptions& options);

}  // namespace kakeya::bench
