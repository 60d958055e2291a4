// Speculative decoding against plain decoding and against every fixed draft length, with a given
// acceptance by depth: does the length policy find the best length, and what is it worth.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "decode/draft_costs.h"
#include "runtime/engine_impl.h"

namespace kakeya::bench {

struct SpeculativeBenchOptions {
  // Share of rounds in which the first d + 1 drafts are all accepted; never rising.
  std::vector<double> survival;
  std::vector<std::int64_t> lengths;  // fixed ones to compare with; empty: 1 ... as the curve has
  std::int64_t context = 64;          // tokens of the prompt
  std::int64_t tokens = 96;           // of one run
  int repetitions = 5;
  std::function<void(int done, int total)> on_progress;  // may be empty
};

struct SpeculativeRun {
  std::int64_t draft_length = 0;  // kAutoDraftLength: chosen by the policy
  // At the given acceptance: what the curve says of the lengths drafted, over the time they took.
  double tokens_per_second = 0.0;  // median of the repetitions
  double min_tokens_per_second = 0.0;
  double max_tokens_per_second = 0.0;
  double times_plain = 0.0;  // median of the repetitions' own ratios
  // The ratio with every round taking the median time of all rounds that drafted as many tokens.
  double steady_times_plain = 0.0;
  double tokens_per_round = 0.0;  // as they came out
  double mean_length = 0.0;       // tokens drafted a round
};

struct SpeculativeReport {
  CostTable costs;
  std::vector<SpeculativeRun> runs;  // plain, the fixed lengths, automatic
  double probe_gb_per_s = 0.0;       // read bandwidth, median of one probe a repetition
  double plain_gb_per_s = 0.0;
  bool outputs_equal = true;  // every run gave the plain output

  const SpeculativeRun& plain() const { return runs.front(); }
  const SpeculativeRun& automatic() const { return runs.back(); }
  // The fixed length, 0 included, with the best steady ratio.
  const SpeculativeRun& best_fixed() const;
};

// The engine must have a drafter. Errors: of the sessions; kInvalidArgument for a curve that rises
// or leaves [0, 1].
Result<SpeculativeReport> bench_speculative(EngineImpl& engine,
                                            const SpeculativeBenchOptions& options);

}  // namespace kakeya::bench
