#include "decode/pass.h"

#include <array>

#include "base/check.h"
#include "base/status.h"

namespace kakeya {

Pass::Pass(Workspace& workspace) : workspace_(workspace), turn_(workspace) {
  workspace_.target_batch().clear();
  workspace_.timelines().clear();
}

Status Pass::add(Timeline& timeline,
                 std::span<const TokenId> ids,
                 std::span<const TokenId> more,
                 std::int64_t logit_rows) {
  KAKEYA_TRY(timeline.reserve(static_cast<std::int64_t>(ids.size() + more.size())));
  workspace_.target_batch().add(ids, more, timeline.position(), timeline.layers(), logit_rows);
  workspace_.timelines().push_back(&timeline);
  return {};
}

Status Pass::run() {
  if (workspace_.timelines().empty()) return {};
  const ModelConfig& config = workspace_.timelines().front()->decoder().config();
  const std::int64_t count = workspace_.target_batch().batch().logit_rows();
  ForwardOutput output{.logits = workspace_.logits(count, config.vocab_size)};
  if (keeps_hidden_) output.hidden = workspace_.hidden(rows(), config.hidden_size);
  return run_into(output);
}

Status Pass::run_into(ForwardOutput output) {
  const Batch batch = workspace_.target_batch().batch();
  const Decoder& decoder = workspace_.timelines().front()->decoder();
  const bool has_own_taps = !output.tap_points.empty();
  if (!has_own_taps) {
    // Sinks and encoders of an engine are of the same drafter: they want the same taps.
    for (const Timeline* timeline : workspace_.timelines()) {
      if (!timeline->tap_points().empty()) output.tap_points = timeline->tap_points();
    }
    const auto points = static_cast<std::int64_t>(output.tap_points.size());
    output.taps = workspace_.taps(batch.rows(), points * decoder.config().hidden_size);
  }
  const std::uint64_t before = workspace_.bytes_read();
  Arena arena = workspace_.arena();
  Activations activations = Activations::layout(arena, decoder.config(), batch.rows());
  Executor& executor = workspace_.executor();
  executor.begin(batch);
  const PassKey key = {.network = &decoder,
                       .rows = {output.logits, output.taps, output.hidden, activations.hidden}};
  if (has_own_taps || !executor.repeat(key)) {
    decoder.forward(batch, executor, activations, output);
  }
  bytes_ = workspace_.bytes_read() - before;
  for (std::size_t i = 0; i < batch.segments.size(); ++i) {
    const Segment& segment = batch.segments[i];
    const ConstRows taps = rows_from(output.taps, segment.first_row, segment.rows);
    const auto share = static_cast<double>(segment.rows) / static_cast<double>(batch.rows());
    workspace_.timelines()[i]->take_rows(
        segment.rows, taps, static_cast<std::uint64_t>(share * static_cast<double>(bytes_)));
  }
  return executor.end(std::array<ConstRows, 3>{output.logits, output.taps, output.hidden});
}

Rows Pass::logits(std::int64_t index) const {
  const Batch batch = workspace_.target_batch().batch();
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < index; ++i) {
    first += batch.segments[static_cast<std::size_t>(i)].logit_rows;
  }
  const auto at = static_cast<std::size_t>(index);
  const std::int64_t width = workspace_.timelines()[at]->decoder().config().vocab_size;
  const Rows all = workspace_.logits(batch.logit_rows(), width);
  return rows_from(all, first, batch.segments[at].logit_rows);
}

HostRows Pass::host_hidden(std::int64_t index) const {
  const auto at = static_cast<std::size_t>(index);
  const Segment& segment = workspace_.target_batch().batch().segments[at];
  const std::int64_t width = workspace_.timelines()[at]->decoder().config().hidden_size;
  return workspace_.download(
      rows_from(workspace_.hidden(rows(), width), segment.first_row, segment.rows));
}

}  // namespace kakeya
