#include "eval/overlap/overlap_eval.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"

namespace kakeya::eval {
namespace {

// Passes over one text, one behind the other.
PassRouting joined(std::span<const PassRouting> passes) {
  PassRouting all;
  for (const PassRouting& pass : passes) {
    all.rows += pass.rows;
    all.layers.resize(std::max(all.layers.size(), pass.layers.size()));
    for (std::size_t l = 0; l < pass.layers.size(); ++l) {
      all.layers[l].insert(all.layers[l].end(), pass.layers[l].begin(), pass.layers[l].end());
    }
  }
  return all;
}

// Which experts a prompt's rows and its drafted blocks were routed to.
struct PromptRouting {
  std::int64_t top_k = 0;
  PassRouting text;
  std::vector<PassRouting> blocks;
};

template <typename Visitor, MaybeConst<PromptRouting> Routing>
void describe(Visitor& visitor, Routing& routing) {
  visitor.kept("top_k", routing.top_k);
  visitor.object("text", routing.text);
  visitor.list("blocks", routing.blocks, HowMany::kAny);
}

Status check_pass(const PassRouting& pass, std::int64_t top_k, std::int64_t num_experts) {
  const bool whole = std::ranges::all_of(pass.layers, [&](const std::vector<std::int32_t>& layer) {
    return std::ssize(layer) % top_k == 0 &&
           std::ranges::all_of(layer, [&](std::int32_t expert) { return expert < num_experts; });
  });
  if (whole) return {};
  return data_loss("expected the experts of a pass, {} a row, got others", top_k);
}

Result<PromptRouting> read_routing(const Report& json, std::int64_t num_experts) {
  KAKEYA_ASSIGN_OR_RETURN(PromptRouting routing,
                          read_fields<PromptRouting>(json, WrittenFor::kJournal));
  if (routing.top_k < 1) return data_loss("expected an expert or more a row, got none");
  KAKEYA_TRY(check_pass(routing.text, routing.top_k, num_experts));
  for (const PassRouting& block : routing.blocks) {
    KAKEYA_TRY(check_pass(block, routing.top_k, num_experts));
  }
  return routing;
}

Result<Report> run_overlap_prompt(Engine& engine,
                                  RoutingLog& log,
                                  const EvalPrompt& prompt,
                                  const OverlapOptions& options) {
  log.passes.clear();
  KAKEYA_ASSIGN_OR_RETURN(const auto session, engine.create_session());
  KAKEYA_TRY(session->append(prompt.ids));
  const bool drafts = options.draft_length > 0;
  KAKEYA_TRY(session->generate(
      {.max_tokens = drafts ? options.max_tokens : 1, .draft_length = options.draft_length}));
  // The passes of the prompt come first.
  auto blocks = log.passes.begin();
  for (std::int64_t left = std::ssize(prompt.ids); left > 0 && blocks != log.passes.end();
       ++blocks) {
    left -= blocks->rows;
  }
  PromptRouting routing{
      .top_k = log.top_k, .text = joined({log.passes.begin(), blocks}), .blocks = {}};
  for (; drafts && blocks != log.passes.end(); ++blocks) {
    if (blocks->rows == options.draft_length + 1) routing.blocks.push_back(*blocks);
  }
  Report json;
  write_fields(json, routing, WrittenFor::kJournal);
  return json;
}

}  // namespace

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

Result<OverlapSetReport> evaluate_overlap(Engine& engine,
                                          RoutingLog& log,
                                          const PromptSet& prompts,
                                          const OverlapOptions& options) {
  OverlapSetReport report{.set = prompts.name, .tokens = 0, .text = {}, .drafts = {}};
  OverlapStatistics text(options.num_experts, options.lengths);
  OverlapStatistics drafts(options.num_experts, {options.draft_length + 1});
  std::int64_t done = 0;
  for (const EvalPrompt& prompt : prompts.prompts) {
    const auto added = [&]() -> Status {
      KAKEYA_ASSIGN_OR_RETURN(
          const Report result,
          PartJournal::result(options.journal, part_of(prompts.name, done, prompt.ids),
                              [&] { return run_overlap_prompt(engine, log, prompt, options); }));
      KAKEYA_ASSIGN_OR_RETURN(const PromptRouting routing,
                              read_routing(result, options.num_experts));
      text.add_text(routing.text.layers, routing.top_k);
      report.tokens += routing.text.rows;
      for (const PassRouting& block : routing.blocks) drafts.add_block(block, routing.top_k);
      return {};
    }();
    if (!added) return Unexpected(added.error().with_context(prompts.name + " " + prompt.id));
    ++done;
    if (options.on_progress) options.on_progress(done, std::ssize(prompts.prompts));
  }
  report.text = text.rows();
  if (options.draft_length > 0) report.drafts = drafts.rows();
  return report;
}

}  // namespace kakeya::eval
