#include "eval/spec/speculation_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cli/sha256.h"

namespace kakeya::cli {
namespace {

// Differing prompts that a line of text names; the JSON names all.
constexpr std::size_t kMostNames = 12;

double per_second(const eval::SpeculationReport& report, const eval::SetTimes& times) {
  // The first token of each reply comes out of the prefill's logits.
  const auto tokens = static_cast<double>(report.tokens - report.prompts);
  return times.steady() > 0.0 ? tokens / times.steady() : 0.0;
}

double speedup(const eval::SpeculationReport& report) {
  const double ratio = report.time_ratio();
  return ratio > 0.0 ? 1.0 / ratio : 0.0;
}

nlohmann::ordered_json set_json(const eval::SpeculationReport& report) {
  const eval::RoundStatistics& rounds = report.rounds;
  nlohmann::ordered_json depths = nlohmann::ordered_json::array();
  for (const eval::DepthAcceptance& depth : rounds.by_depth()) {
    depths.push_back({{"depth", depths.size() + 1},
                      {"rounds", depth.rounds},
                      {"accepted", depth.accepted},
                      {"share", depth.share()}});
  }
  nlohmann::ordered_json json = {
      {"set", report.set},
      {"prompts", report.prompts},
      {"prompt_tokens", report.prompt_tokens},
      {"tokens", report.tokens},
      {"outputs_equal", report.outputs_equal()},
      {"differing", report.differing},
      {"rounds", rounds.rounds()},
      {"drafting_rounds", rounds.drafting_rounds()},
      {"drafted", rounds.drafted()},
      {"accepted", rounds.accepted()},
      {"accepted_per_round", rounds.accepted_per_round()},
      {"acceptance_length", rounds.acceptance_length()},
      {"tokens_per_round", rounds.tokens_per_round()},
      {"acceptance_by_depth", depths},
      {"plain_seconds", report.plain_times.pairs()},
      {"speculative_seconds", report.speculative_times.pairs()},
      {"plain_tokens_per_second", per_second(report, report.plain_times)},
      {"speculative_tokens_per_second", per_second(report, report.speculative_times)},
      {"time_ratio", report.time_ratio()},
      {"steady_time_ratio", report.steady_time_ratio()},
      {"speedup", speedup(report)},
      {"plain_sha256", ids_sha256(report.plain_ids)},
      {"speculative_sha256", ids_sha256(report.speculative_ids)}};
  if (report.answers > 0) {
    json["recall"] = {{"answers", report.answers},
                      {"plain", report.plain_recall},
                      {"speculative", report.speculative_recall}};
  }
  return json;
}

bool all_equal(std::span<const eval::SpeculationReport> reports) {
  return std::all_of(reports.begin(), reports.end(),
                     [](const auto& report) { return report.differing.empty(); });
}

const eval::SpeculationReport& slowest(std::span<const eval::SpeculationReport> reports) {
  return *std::max_element(reports.begin(), reports.end(), [](const auto& a, const auto& b) {
    return a.time_ratio() < b.time_ratio();
  });
}

std::string range_of_ratios(const eval::SpeculationReport& report) {
  std::vector<double> ratios = report.time_ratios();
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  return ratios.empty() ? "" : fmt::format("({:.3f} - {:.3f})", *low, *high);
}

std::string main_table(std::span<const eval::SpeculationReport> reports) {
  constexpr std::string_view kTitles =
      "{:<16} {:>7} {:>7} {:>7} {:>9} {:>9} {:>11} {:>11} {:>6} {:>17} {:>6} {:>8}\n";
  std::string text =
      fmt::format(kTitles, "set", "prompts", "equal", "tokens", "accepted/", "tokens/", "plain",
                  "speculative", "time", "(min - max)", "steady", "speed-up");
  text += fmt::format(kTitles, "", "", "", "", "round", "round", "tokens/s", "tokens/s", "ratio",
                      "", "ratio", "");
  for (const eval::SpeculationReport& report : reports) {
    text += fmt::format(
        "{:<16} {:>7} {:>7} {:>7} {:>9.2f} {:>9.2f} {:>11.1f} {:>11.1f} {:>6.3f} {:>17} {:>6.3f} "
        "{:>8.2f}\n",
        report.set, report.prompts, report.outputs_equal(), report.tokens,
        report.rounds.accepted_per_round(), report.rounds.tokens_per_round(),
        per_second(report, report.plain_times), per_second(report, report.speculative_times),
        report.time_ratio(), range_of_ratios(report), report.steady_time_ratio(), speedup(report));
  }
  return text +
         "(time ratio: the median pair's; steady ratio: of each prompt's median over the pairs)\n";
}

std::string depth_table(std::span<const eval::SpeculationReport> reports) {
  std::size_t deepest = 0;
  for (const auto& report : reports) deepest = std::max(deepest, report.rounds.by_depth().size());
  if (deepest == 0) return "\nno round drafted\n";
  std::string text = fmt::format(
      "\nacceptance by depth: percent of the rounds that drafted so many tokens or more\n{:<16} "
      "{:>8}",
      "set", "drafting");
  for (std::size_t d = 1; d <= deepest; ++d) text += fmt::format(" {:>3}", d);
  text += "\n";
  for (const eval::SpeculationReport& report : reports) {
    const double drafting = static_cast<double>(report.rounds.drafting_rounds()) /
                            static_cast<double>(std::max<std::int64_t>(1, report.rounds.rounds()));
    text += fmt::format("{:<16} {:>7.0f}%", report.set, 100.0 * drafting);
    for (const eval::DepthAcceptance& depth : report.rounds.by_depth()) {
      text += fmt::format(" {:>3.0f}", 100.0 * depth.share());
    }
    text += "\n";
  }
  return text;
}

std::string output_verdict(std::span<const eval::SpeculationReport> reports) {
  std::vector<std::string> names;
  std::int64_t prompts = 0;
  for (const eval::SpeculationReport& report : reports) {
    prompts += report.prompts;
    for (const std::string& id : report.differing) names.push_back(report.set + " " + id);
  }
  if (names.empty()) {
    return fmt::format("outputs equal plain decoding's in every run: {0} of {0} prompts\n",
                       prompts);
  }
  const std::size_t count = names.size();
  if (count > kMostNames) names.resize(kMostNames);
  return fmt::format("outputs DIFFER from plain decoding's for {} of {} prompts: {}{}\n", count,
                     prompts, fmt::join(names, ", "), count > kMostNames ? ", ..." : "");
}

}  // namespace

void add_speculation_json(nlohmann::ordered_json& json,
                          std::span<const eval::SpeculationReport> reports,
                          const std::optional<CostTable>& costs) {
  if (costs) {
    json["costs"] = {{"verify_seconds", costs->verify}, {"draft_seconds", costs->draft}};
  }
  std::vector<TokenId> outputs;
  for (const eval::SpeculationReport& report : reports) {
    json["sets"].push_back(set_json(report));
    outputs.insert(outputs.end(), report.speculative_ids.begin(), report.speculative_ids.end());
  }
  json["outputs_equal"] = all_equal(reports);
  json["slowest_time_ratio"] = slowest(reports).time_ratio();
  json["output_sha256"] = ids_sha256(outputs);
}

std::string format_speculation(std::span<const eval::SpeculationReport> reports) {
  std::string text = main_table(reports) + depth_table(reports) + "\n";
  for (const eval::SpeculationReport& report : reports) {
    if (report.answers == 0) continue;
    text += fmt::format("{}: {} of {} answers found by plain decoding, {} by speculative\n",
                        report.set, report.plain_recall, report.answers, report.speculative_recall);
  }
  const eval::SpeculationReport& last = slowest(reports);
  return text + output_verdict(reports) +
         fmt::format("slowest set: {}, in {:.3f} of plain decoding's time\n", last.set,
                     last.time_ratio());
}

}  // namespace kakeya::cli
