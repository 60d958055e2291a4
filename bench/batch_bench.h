// How much more many sessions give than one, when they share passes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/engine_impl.h"

namespace kakeya::bench {

struct BatchBenchOptions {
  std::vector<std::int64_t> sessions = {1, 2, 4, 8, 16, 32, 64};
  std::int64_t context = 64;  // tokens of each prompt
  std::int64_t tokens = 32;   // of each answer that are measured
  std::int64_t draft_length = 0;
  bool compare_plain = false;  // measured without drafts, too, each time just before
  // With a prompt of so many tokens that comes while they decode, it is measured until that has
  // its first token; 0: none comes.
  std::int64_t arriving = 0;
  int repetitions = 5;
  std::function<void(int done, int total)> on_progress;  // may be empty
};

// The result of `sessions` sessions that all decode; medians over the repetitions.
struct BatchResult {
  std::int64_t sessions = 1;
  double tokens_per_second = 0.0;  // of all sessions together
  double min_tokens_per_second = 0.0;
  double max_tokens_per_second = 0.0;
  // To the tokens a second without drafts of the same repetition; 0: not compared.
  double plain_ratio = 0.0;
  double min_plain_ratio = 0.0;
  double max_plain_ratio = 0.0;
  double ratio = 0.0;            // to that of the first number of sessions in the same repetition
  double gap_seconds = 0.0;      // between two tokens of a session: the median, and 99 of 100
  double gap_seconds_p99 = 0.0;  // are at most so long
  double gap_seconds_max = 0.0;
  double step_seconds = 0.0;  // of a pass: the median
  // The cost of the prompt that arrives: a chunk's pass with the sessions' rows, over the pass of
  // the same chunk with nobody beside it; the largest of the chunks' medians. 0: none arrives.
  double chunk_times = 0.0;
  double step_bytes = 0.0;      // weights and cached rows that a pass reads
  double probe_gb_per_s = 0.0;  // read bandwidth of the same second
  double percent_of_probe = 0.0;
  std::uint64_t session_bytes = 0;   // that the sessions take in all
  std::vector<double> samples = {};  // tokens a second of each repetition
};

// The numbers of sessions take turns, so that noise of the machine falls on all of them. Errors: of
// the scheduler and its requests.
Result<std::vector<BatchResult>> bench_batch(EngineImpl& engine, const BatchBenchOptions& options);

}  // namespace kakeya::bench
