// Times attention over cached rows of a real shape, for every way to keep them, beside the reading
// speed of the same second.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model_config.h"
#include "kakeya/status.h"
#include "tensor/kv_format.h"

namespace kakeya::bench {

// How a layer's rows are kept.
struct AttentionRows {
  KvFormat format = KvFormat::kBf16;
  bool one_vector = false;  // keys are made from the values, where a model's allow it

  std::string name() const;  // "bf16", "int8-one"
};

// Parses "bf16", "bf16-one", ... Errors: kInvalidArgument, with the names there are.
Result<AttentionRows> parse_attention_rows(std::string_view name);

struct AttentionBenchOptions {
  ModelConfig config;
  std::vector<std::int64_t> contexts;  // rows in the cache before the queries' own
  std::vector<std::int64_t> rows;      // queries of one call
  std::vector<AttentionRows> kinds;
  std::string backend = "cpu";                           // or "cpu/avx2" and its like
  int num_threads = 0;                                   // 0: one for each CPU
  double seconds = 0.3;                                  // of measuring, for each case
  std::function<void(int done, int total)> on_progress;  // may be empty
};

struct AttentionResult {
  bool sliding = false;
  AttentionRows kind;
  std::int64_t context = 0;  // of a sliding layer at most its window
  std::int64_t rows = 0;
  double seconds = 0.0;  // of one call of one layer: median
  double min_seconds = 0.0;
  double max_seconds = 0.0;
  double bytes = 0.0;  // of cached rows that some query sees, each once
  double probe_gb_per_s = 0.0;

  double gb_per_s() const { return bytes * 1e-9 / seconds; }
  double percent_of_probe() const {
    return probe_gb_per_s > 0.0 ? 100.0 * gb_per_s() / probe_gb_per_s : 0.0;
  }
};

struct AttentionReport {
  std::string backend;
  int num_threads = 0;
  std::vector<AttentionResult> results;
};

// One layer of each class that the shape has, sliding and full. One vector is measured where keys
// follow from values. Errors: as create_backend; kInvalidArgument for rows that the shape's heads
// do not allow or if nothing is left to measure; kResourceExhausted without memory for the rows.
Result<AttentionReport> bench_attention(const AttentionBenchOptions& options);

}  // namespace kakeya::bench
