#include "eval/texts/divergence_eval.h"

#include <utility>

#include "base/status.h"
#include "eval/texts/perplexity_eval.h"

namespace kakeya::eval {
namespace {

WindowDivergence row_of(const std::string& text, const DistributionStatistics& window) {
  const auto tokens = static_cast<double>(window.positions());
  return {.text = text,
          .tokens = window.positions(),
          .divergence = window.mean_divergence() * tokens,
          .reference_nll = window.reference_nll() * tokens,
          .nll = window.nll() * tokens,
          .same_top = window.same_tops()};
}

}  // namespace

Result<DivergenceReport> evaluate_divergence(EngineImpl& reference,
                                             EngineImpl& other,
                                             const PromptSet& texts,
                                             std::int64_t window,
                                             const DifferenceProgress& progress,
                                             PartJournal* journal) {
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<EvalPrompt> windows,
                          windows_of(texts, reference.bos_id(), window));
  std::vector<std::vector<TokenId>> ids;
  for (const EvalPrompt& each : windows) ids.push_back(each.ids);
  KAKEYA_ASSIGN_OR_RETURN(
      const std::vector<WindowDifference> differences,
      compare_windows(reference, other, ids, progress, {.journal = journal, .set = texts.name}));
  DivergenceReport report{.set = texts.name, .windows = {}};
  DistributionStatistics whole;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    report.windows.push_back(row_of(windows[i].id, differences[i].statistics));
    whole.add(differences[i].statistics);
    report.seconds += differences[i].seconds;
  }
  report.median = whole.divergence_percentile(50.0);
  report.p99 = whole.divergence_percentile(99.0);
  report.most = whole.divergence_percentile(100.0);
  return report;
}

}  // namespace kakeya::eval
