// How many distinct experts neighbouring rows load, against rows that are routed independently of
// one another: what a verify pass of a mixture of experts really reads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "eval/overlap/overlap_report.h"
#include "eval/overlap/routing_log.h"
#include "eval/prompts/prompt_set.h"
#include "eval/report/part_journal.h"
#include "kakeya/engine.h"

namespace kakeya::eval {

// Collects blocks.
class OverlapStatistics {
 public:
  // `num_experts`: X; `lengths`: rows of blocks to look at.
  OverlapStatistics(std::int64_t num_experts, const std::vector<std::int64_t>& lengths);

  // Rows of a text that follow one another: `layers` as in PassRouting. Blocks do not overlap.
  void add_text(std::span<const std::vector<std::int32_t>> layers, std::int64_t top_k);
  // The rows of a pass are one block, of whatever length is looked at.
  void add_block(const PassRouting& pass, std::int64_t top_k);

  // Rows of blocks that were seen, by their length.
  std::vector<OverlapRow> rows() const;

 private:
  void count_block(std::size_t layer,
                   std::span<const std::int32_t> experts,
                   std::int64_t rows,
                   std::int64_t top_k);
  double expected_by_frequency(std::int64_t rows) const;

  std::int64_t num_experts_;
  std::int64_t top_k_ = 0;
  std::vector<OverlapRow> rows_;
  // [layer][expert]: rows that were routed to it; and of how many.
  std::vector<std::vector<std::int64_t>> chosen_;
  std::vector<std::int64_t> routed_;
};

struct OverlapOptions {
  std::int64_t num_experts = 0;
  std::vector<std::int64_t> lengths = {1, 2, 4, 8, 16, 32};
  std::int64_t max_tokens = 64;   // of a reply
  std::int64_t draft_length = 0;  // 0: no drafts are looked at
  std::function<void(std::int64_t done, std::int64_t total)> on_progress = {};
  PartJournal* journal = nullptr;  // of prompts
};

// Runs prompts and replies to them; `log` is that of the engine's backend. Errors: as
// Session::generate and PartJournal::result, with the prompt's id.
Result<OverlapSetReport> evaluate_overlap(Engine& engine,
                                          RoutingLog& log,
                                          const PromptSet& prompts,
                                          const OverlapOptions& options);

}  // namespace kakeya::eval
