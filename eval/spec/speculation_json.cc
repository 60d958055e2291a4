// The results of one set, as a journal has them.
#include <utility>

#include "eval/report/field_reader.h"
#include "eval/spec/speculation_eval.h"

namespace kakeya::eval {
namespace {

Report round_counts_json(const RoundCounts& counts) {
  Report depths = Report::array();
  for (const DepthAcceptance& depth : counts.by_depth) {
    depths.push_back({{"rounds", depth.rounds}, {"accepted", depth.accepted}});
  }
  return {{"rounds", counts.rounds},       {"drafting_rounds", counts.drafting_rounds},
          {"drafted", counts.drafted},     {"accepted", counts.accepted},
          {"committed", counts.committed}, {"by_depth", depths}};
}

Result<RoundStatistics> parse_round_counts(const Report& json) {
  RoundCounts counts;
  std::vector<Report> depths;
  KAKEYA_TRY(FieldReader(json)
                 .take("rounds", counts.rounds)
                 .take("drafting_rounds", counts.drafting_rounds)
                 .take("drafted", counts.drafted)
                 .take("accepted", counts.accepted)
                 .take("committed", counts.committed)
                 .take("by_depth", depths)
                 .status("counts of rounds"));
  for (const Report& each : depths) {
    DepthAcceptance& depth = counts.by_depth.emplace_back();
    KAKEYA_TRY(FieldReader(each)
                   .take("rounds", depth.rounds)
                   .take("accepted", depth.accepted)
                   .status("counts of a depth"));
  }
  return RoundStatistics(std::move(counts));
}

}  // namespace

Report speculation_json(const SpeculationReport& report) {
  return {{"set", report.set},
          {"prompts", report.prompts},
          {"prompt_tokens", report.prompt_tokens},
          {"tokens", report.tokens},
          {"differing", report.differing},
          {"rounds", round_counts_json(report.rounds.counts())},
          {"plain_seconds", report.plain_times.seconds()},
          {"speculative_seconds", report.speculative_times.seconds()},
          {"answers", report.answers},
          {"plain_recall", report.plain_recall},
          {"speculative_recall", report.speculative_recall},
          {"plain_ids", report.plain_ids},
          {"speculative_ids", report.speculative_ids}};
}

Result<SpeculationReport> parse_speculation(const Report& json) {
  SpeculationReport report;
  Report rounds;
  std::vector<std::vector<double>> plain;
  std::vector<std::vector<double>> speculative;
  KAKEYA_TRY(FieldReader(json)
                 .take("set", report.set)
                 .take("prompts", report.prompts)
                 .take("prompt_tokens", report.prompt_tokens)
                 .take("tokens", report.tokens)
                 .take("differing", report.differing)
                 .take("rounds", rounds)
                 .take("plain_seconds", plain)
                 .take("speculative_seconds", speculative)
                 .take("answers", report.answers)
                 .take("plain_recall", report.plain_recall)
                 .take("speculative_recall", report.speculative_recall)
                 .take("plain_ids", report.plain_ids)
                 .take("speculative_ids", report.speculative_ids)
                 .status("what a set gave"));
  KAKEYA_ASSIGN_OR_RETURN(report.rounds, parse_round_counts(rounds));
  report.plain_times = SetTimes(std::move(plain));
  report.speculative_times = SetTimes(std::move(speculative));
  return report;
}

}  // namespace kakeya::eval
