// Speculative decoding against plain decoding over a prompt set: is the output the same, what is
// accepted, and how long does it take.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/median.h"
#include "eval/prompts/prompt_set.h"
#include "eval/report/part_journal.h"
#include "eval/spec/round_statistics.h"
#include "kakeya/options.h"
#include "runtime/engine_impl.h"

namespace kakeya::eval {

struct SpeculationEvalOptions {
  GenerateOptions generate = {.max_tokens = 128};  // of the speculative runs
  SessionOptions session = {};
  int pairs = 3;  // timed passes over the set, each with both ways for every prompt
  // Drafts are made at their usual cost and then replaced by wrong ones.
  bool forced_rejection = false;
  std::function<void(std::int64_t done, std::int64_t total)> on_progress = {};  // in generations
  // The journal of sets as a whole: times of pairs that ran side by side are no others' times.
  PartJournal* journal = nullptr;
};

// Seconds of every prompt in every pair.
class SetTimes {
 public:
  SetTimes() = default;
  explicit SetTimes(std::vector<std::vector<double>> seconds) : seconds_(std::move(seconds)) {}

  void add(std::size_t prompt, double seconds);

  // [prompt][pair]
  const std::vector<std::vector<double>>& seconds() const { return seconds_; }
  // The whole set in each pair.
  std::vector<double> pairs() const;
  // Each prompt's median over the pairs, all together.
  double steady() const;

 private:
  std::vector<std::vector<double>> seconds_;
};

struct SpeculationReport {
  std::string set = {};
  std::int64_t prompts = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t tokens = 0;  // of the plain outputs
  // Ids of the prompts for which a run, of either way, gave other tokens or another stop reason
  // than the first plain one.
  std::vector<std::string> differing = {};
  RoundStatistics rounds = {};  // of the speculative runs of all pairs
  // Decoding, without prefill and without measuring costs.
  SetTimes plain_times = {};
  SetTimes speculative_times = {};
  std::int64_t answers = 0;  // prompts that have one, and outputs that contain it
  std::int64_t plain_recall = 0;
  std::int64_t speculative_recall = 0;
  // All outputs one after the other: of the first plain pass and of the first speculative one.
  std::vector<TokenId> plain_ids = {};
  std::vector<TokenId> speculative_ids = {};

  std::int64_t outputs_equal() const {
    return prompts - static_cast<std::int64_t>(differing.size());
  }
  // Speculative over plain seconds of the whole set, of each pair; and their median.
  std::vector<double> time_ratios() const;
  double time_ratio() const { return median(time_ratios()); }
  // The ratio of the sums of each prompt's median over the pairs. A burst of other work on the
  // machine falls on some prompts of some pairs, so that this is steadier.
  double steady_time_ratio() const;
};

// A plain pass gives the outputs to compare with; then `pairs` timed passes run each prompt both
// ways, every other prompt speculative first, so that neither always finds the caches warm.
// Plain decoding has a session without drafting, on the same weights: a second copy in other pages
// of memory may by itself be some percent faster or slower.
// Errors: of the sessions, with the prompt's id, and of PartJournal::result.
Result<SpeculationReport> evaluate_speculation(EngineImpl& engine,
                                               const PromptSet& set,
                                               const SpeculationEvalOptions& options);

// As journals have it. Errors: kDataLoss for what is none.
Report speculation_json(const SpeculationReport& report);
Result<SpeculationReport> parse_speculation(const Report& json);

}  // namespace kakeya::eval
