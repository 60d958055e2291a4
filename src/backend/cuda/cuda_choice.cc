// Choosing where the largest logits mostly are enough: the device lists them, so that rows of
// logits stay there, and the host's sampler chooses among them. A row of which it cannot tell comes
// to the host whole. Lists are made with the pass that gives the logits, in the host's memory,
// before anybody asks: whoever chooses then only reads.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backend/choose.h"
#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/device/largest.h"

namespace kakeya::cuda {
namespace {

// 262,144 columns have 256 bins. Were it by chance, one row of ten thousand would have as many of
// its 64 largest in one bin as are listed.
constexpr std::int64_t kMostBlocks = 32;
// More of a pass are chosen from whole, if ever.
constexpr std::int64_t kMostListedRows = 256;

std::int64_t span_of(std::int64_t width) {
  const std::int64_t columns = (width + kMostBlocks - 1) / kMostBlocks;
  return (columns + device::kLargestThreads - 1) / device::kLargestThreads *
         device::kLargestThreads;
}

// The number of logits that the device lists for a row.
std::int64_t num_listed(std::int64_t width) {
  return (width + span_of(width) - 1) / span_of(width) * device::kLargestListed;
}

Rows row_of(Rows rows, std::size_t row) {
  return {rows.data + static_cast<std::int64_t>(row) * rows.width, 1, rows.width};
}

}  // namespace

std::int64_t CudaExecutor::most_listed(const ExecutorPlan& plan) {
  return std::min(plan.max_rows, kMostListedRows) * kMostBlocks * device::kLargestListed;
}

std::optional<std::size_t> CudaExecutor::list_largest(ConstRows rows) {
  const auto listed = static_cast<std::size_t>(rows.count * num_listed(rows.width));
  if (num_listed_ + listed > static_cast<std::size_t>(most_listed(plan_))) return std::nullopt;
  const std::size_t first = std::exchange(num_listed_, num_listed_ + listed);
  const device::LargestParams parameters = {rows.data.address(), rows.width, span_of(rows.width),
                                            lists_ + first};
  launch(Kernel::largest,
         {num_listed(rows.width) / device::kLargestListed, rows.count, device::kLargestThreads,
          device::kLargestWords},
         &parameters);
  return first;
}

void CudaExecutor::list_logits(std::span<const ConstRows> read) {
  num_listed_ = 0;
  const ConstRows logits = read.empty() ? ConstRows() : read.front();
  if (logits.count == 0 || logits.count != batch().logit_rows()) return;
  if (list_largest(logits)) listed_rows_ = {logits, driver_.num_changes()};
}

std::optional<std::size_t> CudaExecutor::find_lists(ConstRows rows) const {
  const ConstRows& all = listed_rows_.rows;
  if (rows.width != all.width || listed_rows_.changes != driver_.num_changes()) return std::nullopt;
  const auto row_bytes = static_cast<std::uintptr_t>(rows.width) * sizeof(float);
  const auto begin = reinterpret_cast<std::uintptr_t>(all.data.address());
  const auto at = reinterpret_cast<std::uintptr_t>(rows.data.address());
  if (at < begin || (at - begin) % row_bytes != 0) return std::nullopt;
  const auto first = static_cast<std::int64_t>((at - begin) / row_bytes);
  if (first + rows.count > all.count) return std::nullopt;
  return static_cast<std::size_t>(first * num_listed(rows.width));
}

Status CudaExecutor::place_lists() {
  places_.clear();
  bool has_all = true;
  for (const ConstRows& rows : wanted_) {
    places_.push_back(rows.count == 0 ? std::nullopt : find_lists(rows));
    has_all = has_all && (rows.count == 0 || places_.back());
  }
  if (has_all) return {};
  num_listed_ = 0;
  places_.clear();
  for (const ConstRows& rows : wanted_) {
    places_.push_back(rows.count == 0 ? std::nullopt : list_largest(rows));
  }
  return num_listed_ == 0 ? Status() : finish();
}

std::optional<LargestLogits> CudaExecutor::read_largest(std::size_t first,
                                                        Rows rows,
                                                        std::size_t row,
                                                        TokenId never) {
  const auto count = static_cast<std::size_t>(num_listed(rows.width));
  LargestLogits largest = {{}, -std::numeric_limits<float>::infinity()};
  listed_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [value, id] = lists_[first + row * count + i];
    if (std::isnan(value)) return std::nullopt;
    if (id < 0) continue;
    if (id != never) listed_.push_back({id, value});
    const bool last_of_bin = (i + 1) % device::kLargestOfBin == 0;
    if (last_of_bin) largest.others = std::max(largest.others, value);
  }
  largest.listed = listed_;
  return largest;
}

void CudaExecutor::choose(std::span<SequenceChoice> choices, HostCopies& copies) {
  wanted_.clear();
  for (const SequenceChoice& choice : choices) {
    const bool wants_logits = !choice.raw_logits.empty();
    const bool lists_do = !wants_logits && choice.sampler->chooses_from_largest();
    wanted_.push_back(lists_do ? ConstRows(choice.logits) : ConstRows());
  }
  const Status fetched = place_lists();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    SequenceChoice& choice = choices[i];
    if (!fetched) {
      choice.count = 0;
      choice.status = fetched;
      continue;
    }
    if (!places_[i]) {
      Executor::choose({&choice, 1}, copies);
      continue;
    }
    accept_choices(choice, [&](std::size_t row) -> Result<TokenId> {
      if (const auto largest = read_largest(*places_[i], choice.logits, row, -1)) {
        const Position position = choice.position + static_cast<Position>(row);
        if (const auto id = choice.sampler->sample(*largest, position)) return *id;
      }
      return choose_row(choice, row, copies.download(row_of(choice.logits, row)).row(0));
    });
  }
}

TokenId CudaExecutor::draft_row_from_largest(std::size_t first,
                                             const BlockChoice& choice,
                                             std::size_t row,
                                             HostCopies& copies) {
  if (const auto largest = read_largest(first, choice.logits, row, choice.never)) {
    const Position position = choice.position + static_cast<Position>(row);
    if (const auto id = choice.sampler->draft(*largest, position)) return *id;
  }
  return draft_row(choice, row, copies.download(row_of(choice.logits, row)).row(0));
}

// A row whose lists may lack one of its largest comes to the host whole.
void CudaExecutor::list_largest(Rows logits,
                                TokenId never,
                                HostCopies& copies,
                                std::span<TokenLogit> out) {
  wanted_.assign(1, ConstRows(logits));
  static_cast<void>(place_lists());
  const std::size_t count = out.size() / static_cast<std::size_t>(logits.count);
  for (std::size_t row = 0; row < static_cast<std::size_t>(logits.count); ++row) {
    const std::span own = out.subspan(row * count, count);
    const auto largest = places_.empty() || !places_.front()
                             ? std::nullopt
                             : read_largest(*places_.front(), logits, row, never);
    if (largest && listed_.size() >= count) {
      std::ranges::partial_sort(listed_, listed_.begin() + static_cast<std::ptrdiff_t>(count),
                                IsBetter());
      std::copy_n(listed_.begin(), count, own.begin());
      if (count > 0 && own.back().logit > largest->others) continue;
    }
    list_largest_of(copies.download(row_of(logits, row)).row(0), never, own);
  }
}

void CudaExecutor::choose_drafts(std::span<BlockChoice> choices, HostCopies& copies) {
  wanted_.clear();
  for (const BlockChoice& choice : choices) {
    const bool lists_do = choice.sampler->chooses_from_largest();
    wanted_.push_back(lists_do ? ConstRows(choice.logits) : ConstRows());
  }
  // A failure spoils guesses alone; a card that is lost ends the pass that looks at them.
  static_cast<void>(place_lists());
  for (std::size_t i = 0; i < choices.size(); ++i) {
    BlockChoice& choice = choices[i];
    if (!places_[i]) {
      Executor::choose_drafts({&choice, 1}, copies);
      continue;
    }
    for (std::size_t row = 0; row < choice.out.size(); ++row) {
      choice.out[row] = draft_row_from_largest(*places_[i], choice, row, copies);
    }
    choice.sampler->end_drafts();
  }
}

}  // namespace kakeya::cuda
