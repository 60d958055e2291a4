#include "overlap_eval.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kakeya/status_macros.h"

namespace kakeya::eval {
namespace {

// Passes over one text, one behind the other.
std::vector<std::vector<std::int32_t>> joined(std::span<const PassRouting> passes) {
  std::vector<std::vector<std::int32_t>> layers;
  for (const PassRouting& pass : passes) {
    layers.resize(std::max(layers.size(), pass.layers.size()));
    for (std::size_t l = 0; l < pass.layers.size(); ++l) {
      layers[l].insert(layers[l].end(), pass.layers[l].begin(), pass.layers[l].end());
    }
  }
  return layers;
}

}  // namespace

double expected_evenly(std::int64_t num_experts, std::int64_t top_k, std::int64_t rows) {
  const auto experts = static_cast<double>(num_experts);
  const double missed = 1.0 - static_cast<double>(top_k) / experts;
  return experts * (1.0 - std::pow(missed, static_cast<double>(rows)));
}

double OverlapRow::mean_distinct() const {
  return blocks == 0 ? 0.0 : static_cast<double>(distinct) / static_cast<double>(blocks);
}

OverlapStatistics::OverlapStatistics(std::int64_t num_experts,
                                     const std::vector<std::int64_t>& lengths)
    : num_experts_(num_experts) {
  for (const std::int64_t length : lengths) rows_.push_back({.rows = length});
}

void OverlapStatistics::count_block(std::size_t layer,
                                    std::span<const std::int32_t> experts,
                                    std::int64_t rows,
                                    std::int64_t top_k) {
  top_k_ = top_k;
  const auto row = std::ranges::find(rows_, rows, &OverlapRow::rows);
  if (row == rows_.end()) return;
  std::vector<std::int32_t> sorted(experts.begin(), experts.end());
  std::ranges::sort(sorted);
  row->distinct += std::unique(sorted.begin(), sorted.end()) - sorted.begin();
  ++row->blocks;
  const auto k = static_cast<std::size_t>(top_k);
  for (std::size_t first = k; first < experts.size(); first += k) {
    ++row->pairs;
    for (std::size_t i = 0; i < k; ++i) {
      const auto before = experts.subspan(first - k, k);
      row->shared += std::ranges::count(before, experts[first + i]);
    }
  }
  if (chosen_.size() <= layer) {
    chosen_.resize(layer + 1, std::vector<std::int64_t>(static_cast<std::size_t>(num_experts_)));
    routed_.resize(layer + 1);
  }
  // Once, whatever lengths are looked at.
  if (rows != rows_.front().rows) return;
  routed_[layer] += rows;
  for (const std::int32_t expert : experts) ++chosen_[layer][static_cast<std::size_t>(expert)];
}

void OverlapStatistics::add_text(std::span<const std::vector<std::int32_t>> layers,
                                 std::int64_t top_k) {
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const std::span<const std::int32_t> all = layers[layer];
    for (const OverlapRow& row : std::vector<OverlapRow>(rows_)) {
      const auto block = static_cast<std::size_t>(row.rows * top_k);
      for (std::size_t first = 0; first + block <= all.size(); first += block) {
        count_block(layer, all.subspan(first, block), row.rows, top_k);
      }
    }
  }
}

void OverlapStatistics::add_block(const PassRouting& pass, std::int64_t top_k) {
  for (std::size_t layer = 0; layer < pass.layers.size(); ++layer) {
    count_block(layer, pass.layers[layer], pass.rows, top_k);
  }
}

double OverlapStatistics::expected_by_frequency(std::int64_t rows) const {
  double sum = 0.0;
  for (std::size_t layer = 0; layer < chosen_.size(); ++layer) {
    if (routed_[layer] == 0) continue;
    for (const std::int64_t count : chosen_[layer]) {
      const double missed = 1.0 - static_cast<double>(count) / static_cast<double>(routed_[layer]);
      sum += 1.0 - std::pow(missed, static_cast<double>(rows));
    }
  }
  return chosen_.empty() ? 0.0 : sum / static_cast<double>(chosen_.size());
}

std::vector<OverlapRow> OverlapStatistics::rows() const {
  std::vector<OverlapRow> seen;
  for (OverlapRow row : rows_) {
    if (row.blocks == 0) continue;
    row.uniform = expected_evenly(num_experts_, top_k_, row.rows);
    row.by_frequency = expected_by_frequency(row.rows);
    seen.push_back(row);
  }
  return seen;
}

Result<OverlapReport> evaluate_overlap(Engine& engine,
                                       RoutingLog& log,
                                       const PromptSet& prompts,
                                       const OverlapOptions& options) {
  OverlapReport report{.set = prompts.name, .tokens = 0, .text = {}, .drafts = {}};
  OverlapStatistics text(options.num_experts, options.lengths);
  OverlapStatistics drafts(options.num_experts, {options.draft_length + 1});
  std::int64_t done = 0;
  for (const EvalPrompt& prompt : prompts.prompts) {
    log.passes.clear();
    KAKEYA_ASSIGN_OR_RETURN(const auto session, engine.create_session());
    const auto generated = [&]() -> Status {
      KAKEYA_TRY(session->append(prompt.ids));
      KAKEYA_TRY(session->prefill());
      text.add_text(joined(log.passes), log.top_k);
      for (const PassRouting& pass : log.passes) report.tokens += pass.rows;
      if (options.draft_length == 0) return {};
      log.passes.clear();
      KAKEYA_TRY(session->generate(
          {.max_tokens = options.max_tokens, .draft_length = options.draft_length}));
      for (const PassRouting& pass : log.passes) {
        if (pass.rows == options.draft_length + 1) drafts.add_block(pass, log.top_k);
      }
      return {};
    }();
    if (!generated)
      return Unexpected(generated.error().with_context(prompts.name + " " + prompt.id));
    if (options.on_progress) options.on_progress(++done, std::ssize(prompts.prompts));
  }
  report.text = text.rows();
  if (options.draft_length > 0) report.drafts = drafts.rows();
  return report;
}

}  // namespace kakeya::eval
