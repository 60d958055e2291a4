#include "eval/texts/model_difference.h"

#include <algorithm>
#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "eval/report/field_reader.h"

namespace kakeya::eval {
namespace {

// Tokens of one pass: rows of logits of a large vocabulary are wide.
constexpr std::size_t kMaxRows = 128;

Result<std::unique_ptr<Timeline>> timeline_of(EngineImpl& engine, std::size_t context) {
  SessionOptions options = engine.session_options();
  options.context = static_cast<std::int64_t>(context);
  options.max_rows = static_cast<std::int64_t>(std::min(kMaxRows, context));
  options.drafting = false;
  return engine.create_timeline(options, 1);
}

// Two models side by side over one window after the other.
class ModelComparison {
 public:
  ModelComparison(EngineImpl& reference, EngineImpl& other)
      : reference_(reference),
        other_(other),
        vocab_size_(static_cast<std::size_t>(reference.vocab_size())),
        reference_logits_(kMaxRows * vocab_size_),
        other_logits_(kMaxRows * vocab_size_) {}

  Result<std::vector<WindowDifference>> run(std::span<const std::vector<TokenId>> windows,
                                            const DifferenceProgress& progress,
                                            const WindowJournal& journal);

 private:
  // Statistics and seconds.
  Result<Report> run_window(std::span<const TokenId> ids, const DifferenceProgress& progress);
  // Rows of the positions from `begin` on.
  Status compare(std::span<const TokenId> ids,
                 std::size_t begin,
                 std::size_t rows,
                 DistributionStatistics& statistics);

  EngineImpl& reference_;
  EngineImpl& other_;
  std::size_t vocab_size_;
  std::vector<float> reference_logits_;  // [kMaxRows, V]
  std::vector<float> other_logits_;      // [kMaxRows, V]
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

Result<std::vector<WindowDifference>> ModelComparison::run(
    std::span<const std::vector<TokenId>> windows,
    const DifferenceProgress& progress,
    const WindowJournal& journal) {
  for (const auto& window : windows) total_ += window.size();
  std::vector<WindowDifference> differences;
  std::uint64_t end = 0;
  for (const auto& window : windows) {
    KAKEYA_ASSIGN_OR_RETURN(
        const Report result,
        PartJournal::result(journal.journal, part_of(journal.set, std::ssize(differences), window),
                            [&] { return run_window(window, progress); }));
    WindowDifference difference;
    Report statistics;
    KAKEYA_TRY(FieldReader(result)
                   .take("statistics", statistics)
                   .take("seconds", difference.seconds)
                   .status("a window's differences"));
    KAKEYA_ASSIGN_OR_RETURN(difference.statistics, parse_distribution(statistics));
    differences.push_back(std::move(difference));
    end += window.size();
    if (done_ == end) continue;  // it ran
    done_ = end;
    if (progress) KAKEYA_TRY(progress(done_, total_));
  }
  return differences;
}

Result<Report> ModelComparison::run_window(std::span<const TokenId> ids,
                                           const DifferenceProgress& progress) {
  const Stopwatch watch;
  DistributionStatistics statistics;
  KAKEYA_ASSIGN_OR_RETURN(const auto reference, timeline_of(reference_, ids.size()));
  KAKEYA_ASSIGN_OR_RETURN(const auto other, timeline_of(other_, ids.size()));
  for (std::size_t begin = 0; begin < ids.size(); begin += kMaxRows) {
    const auto chunk = ids.subspan(begin, std::min(kMaxRows, ids.size() - begin));
    const auto logits = [&](std::vector<float>& of) {
      return HostOutput{
          .logits = {of.data(), std::ssize(chunk), static_cast<std::int64_t>(vocab_size_)}};
    };
    KAKEYA_TRY(reference->forward(chunk, logits(reference_logits_)));
    KAKEYA_TRY(other->forward(chunk, logits(other_logits_)));
    KAKEYA_TRY(compare(ids, begin, chunk.size(), statistics));
    done_ += chunk.size();
    if (progress) KAKEYA_TRY(progress(done_, total_));
  }
  return Report{{"statistics", distribution_json(statistics)}, {"seconds", watch.seconds()}};
}

Status ModelComparison::compare(std::span<const TokenId> ids,
                                std::size_t begin,
                                std::size_t rows,
                                DistributionStatistics& statistics) {
  const std::size_t end = std::min(begin + rows, ids.size() - 1);
  for (std::size_t position = begin; position < end; ++position) {
    const std::size_t offset = (position - begin) * vocab_size_;
    const PositionDifference difference = compare_logits(
        std::span<const float>(reference_logits_).subspan(offset, vocab_size_),
        std::span<const float>(other_logits_).subspan(offset, vocab_size_), ids[position + 1]);
    if (!difference.finite()) {
      return error(StatusCode::kInternal, "expected finite logits, got others at position {}",
                   position);
    }
    statistics.add(difference);
  }
  return {};
}

}  // namespace

Result<std::vector<WindowDifference>> compare_windows(EngineImpl& reference,
                                                      EngineImpl& other,
                                                      std::span<const std::vector<TokenId>> windows,
                                                      const DifferenceProgress& progress,
                                                      const WindowJournal& journal) {
  if (reference.vocab_size() != other.vocab_size()) {
    return invalid_argument("expected models of one vocabulary, got {} and {} tokens",
                            reference.vocab_size(), other.vocab_size());
  }
  return ModelComparison(reference, other).run(windows, progress, journal);
}

Result<DistributionStatistics> compare_models(EngineImpl& reference,
                                              EngineImpl& other,
                                              std::span<const std::vector<TokenId>> windows,
                                              const DifferenceProgress& progress) {
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<WindowDifference> all,
                          compare_windows(reference, other, windows, progress));
  DistributionStatistics whole;
  for (const WindowDifference& window : all) whole.add(window.statistics);
  return whole;
}

}  // namespace kakeya::eval
