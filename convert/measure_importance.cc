#include "convert/measure_importance.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status.h"
#include "convert/observing_backend.h"
#include "decode/timeline.h"
#include "formats/model_config.h"
#include "model/checkpoint_source.h"
#include "model/decoder.h"
#include "model/weight_loader.h"

namespace kakeya {

namespace {

// Tokens of one pass: rows of logits of a large vocabulary are wide.
constexpr std::int64_t kMaxRows = 128;

// One model with everything that its passes need.
class Calibration {
 public:
  Calibration(ObservingBackend& backend, const CalibrationOptions& options, MemoryBudget& budget)
      : backend_(backend), options_(options), budget_(budget) {}

  Status load(const std::string& model_dir);
  Status run(std::span<const std::vector<TokenId>> windows);

 private:
  Status run_window(Timeline& timeline, std::span<const TokenId> ids);

  ObservingBackend& backend_;
  const CalibrationOptions& options_;
  MemoryBudget& budget_;
  std::unique_ptr<CheckpointSource> source_;  // tables are read where it is mapped
  std::unique_ptr<Decoder> decoder_;
  Buffer logits_;  // [kMaxRows, V]
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

Status Calibration::load(const std::string& model_dir) {
  KAKEYA_ASSIGN_OR_RETURN(const ModelConfig config, load_model_config(model_dir));
  KAKEYA_ASSIGN_OR_RETURN(source_, CheckpointSource::open(model_dir, config));
  WeightLoader measure(*source_, backend_);
  KAKEYA_TRY(load_decoder(config, measure, options_.compute));
  Status wanted;
  WeightLoader loader(*source_, backend_, budget_, [&](std::uint64_t done) {
    if (options_.on_load && wanted) wanted = options_.on_load(done, measure.source_bytes());
  });
  KAKEYA_ASSIGN_OR_RETURN(decoder_, load_decoder(config, loader, options_.compute));
  KAKEYA_TRY(std::move(wanted));
  const auto elements = static_cast<std::uint64_t>(kMaxRows * config.vocab_size);
  KAKEYA_ASSIGN_OR_RETURN(logits_,
                          budget_.allocate(MemoryClass::kLogits, elements * sizeof(float)));
  return {};
}

Status Calibration::run(std::span<const std::vector<TokenId>> windows) {
  std::size_t longest = 0;
  for (const auto& window : windows) {
    total_ += window.size();
    longest = std::max(longest, window.size());
  }
  const auto context = static_cast<std::int64_t>(longest);
  const SessionOptions session = {.context = context, .max_rows = std::min(kMaxRows, context)};
  KAKEYA_ASSIGN_OR_RETURN(const TimelinePlan plan,
                          plan_timeline(decoder_->config(), session, options_.compute, 1));
  Workspace workspace(backend_, budget_);
  for (const auto& window : windows) {
    KAKEYA_ASSIGN_OR_RETURN(const auto timeline,
                            Timeline::create(*decoder_, workspace, plan, budget_));
    KAKEYA_TRY(run_window(*timeline, window));
  }
  return {};
}

Status Calibration::run_window(Timeline& timeline, std::span<const TokenId> ids) {
  const std::int64_t vocab_size = decoder_->config().vocab_size;
  while (!ids.empty()) {
    const auto chunk = ids.first(std::min(static_cast<std::size_t>(kMaxRows), ids.size()));
    ids = ids.subspan(chunk.size());
    // Logits of all rows, so that the head meets all of them.
    const HostRows logits = {logits_.as<float>(), std::ssize(chunk), vocab_size};
    KAKEYA_TRY(timeline.forward(chunk, {.logits = logits}));
    done_ += chunk.size();
    if (options_.progress) KAKEYA_TRY(options_.progress(done_, total_));
  }
  return {};
}

}  // namespace

Result<Importance> measure_importance(const std::string& model_dir,
                                      std::span<const std::vector<TokenId>> windows,
                                      const CalibrationOptions& options,
                                      MemoryBudget& budget) {
  KAKEYA_ASSIGN_OR_RETURN(auto inner, create_backend(options.backend));
  ObservingBackend backend(std::move(inner));
  {
    Calibration calibration(backend, options, budget);
    KAKEYA_TRY(calibration.load(model_dir));
    KAKEYA_TRY(calibration.run(windows));
  }
  Importance importance;
  for (const auto& [name, sums] : backend.sums()) {
    if (sums.total_rows() == 0) continue;
    KAKEYA_ASSIGN_OR_RETURN(ColumnImportance columns, sums.importance(budget));
    importance.set(name, std::move(columns));
  }
  return importance;
}

}  // namespace kakeya
