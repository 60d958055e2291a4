// Times single operations of a backend on the shapes of gemma4-26b-a4b, each beside what the
// machine can do at that moment. Weights are distinct and together larger than the caches.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kakeya/status.h"
#include "tensor/quantized_format.h"

namespace kakeya::bench {

struct KernelBenchOptions {
  std::string backend = "cpu";  // or "cpu/avx2", "cuda" and their like
  int num_threads = 0;          // 0: one for each CPU
  double seconds = 0.5;         // of measuring, for each case
  std::string filter;           // only cases whose name contains it
  // The type of the weights of products; none: bf16, and others beside it.
  std::optional<QuantizedFormat> weights = {};
  std::vector<int> rows = {};  // T of the products; empty: 1, 2, 4, 8, 16, 32, 128, 512
};

struct KernelResult {
  std::string name;         // "matmul 2816x4096 bf16"
  int rows = 0;             // T
  double milliseconds = 0;  // median of one call
  double bytes = 0;         // weights, or keys and values, that one call has to read
  double gigabytes_per_second = 0;
  double bandwidth_percent = 0;  // of what ReadProbe measured just before; 0: nothing
  double gflops = 0;
  double peak_percent = 0;  // of the register-resident peak of the instructions in use; 0: unknown
  // Multiplications of a weight by a number in a clock cycle: known of cached products alone, which
  // are timed in CPU time of one core, and whose peak is the bound of the format.
  double multiplications_per_cycle = 0;
};

struct KernelReport {
  std::string backend;  // "cpu/amx_bf16"
  int num_threads = 0;
  double bf16_peak_gflops = 0;  // 0: unknown, as of devices
  double f32_peak_gflops = 0;
  std::vector<KernelResult> results;
};

// Errors: as create_backend; kResourceExhausted without a few GB of free memory.
Result<KernelReport> run_kernel_bench(const KernelBenchOptions& options);

// The report as an aligned table, with a heading.
std::string format_kernel_report(const KernelReport& report);

}  // namespace kakeya::bench
