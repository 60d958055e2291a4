// Choosing where the largest logits mostly are enough: the device lists them, so that rows of
// logits stay there, and the host's sampler chooses among them. A row of which it cannot tell comes
// to the host whole.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/choose.h"
#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/device/largest.h"

namespace kakeya::cuda {
namespace {

// 262,144 columns have 256 bins. Were it by chance, one row of ten thousand would have as many of
// its 64 largest in one bin as are listed.
constexpr std::int64_t kMostBlocks = 32;

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

std::optional<std::size_t> CudaExecutor::list_largest(Rows rows, const Sampler& sampler) {
  const auto listed = static_cast<std::size_t>(rows.count * num_listed(rows.width));
  const auto room =
      static_cast<std::size_t>(num_partials_) * sizeof(float) / sizeof(device::ListedLogit);
  if (!sampler.chooses_from_largest() || largest_.size() + listed > room) return std::nullopt;
  const std::size_t first = largest_.size();
  largest_.resize(first + listed);
  const device::LargestParams parameters = {
      rows.data.address(), rows.width, span_of(rows.width),
      reinterpret_cast<device::ListedLogit*>(partials_) + first};
  launch(Kernel::largest,
         {num_listed(rows.width) / device::kLargestListed, rows.count, device::kLargestThreads,
          device::kLargestWords},
         &parameters);
  return first;
}

std::optional<LargestLogits> CudaExecutor::read_largest(std::size_t first,
                                                        Rows rows,
                                                        std::size_t row,
                                                        TokenId never) {
  const auto count = static_cast<std::size_t>(num_listed(rows.width));
  LargestLogits largest = {{}, -std::numeric_limits<float>::infinity()};
  listed_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [value, id] = largest_[first + row * count + i];
    if (std::isnan(value)) return std::nullopt;
    if (id < 0) continue;
    if (id != never) listed_.push_back({id, value});
    const bool last_of_bin = (i + 1) % device::kLargestOfBin == 0;
    if (last_of_bin) largest.others = std::max(largest.others, value);
  }
  largest.listed = listed_;
  return largest;
}

Status CudaExecutor::fetch_largest() {
  if (largest_.empty()) return {};
  download(space(),
           DevicePointer<const device::ListedLogit>(
               reinterpret_cast<const device::ListedLogit*>(partials_)),
           std::span(largest_));
  return end({});
}

void CudaExecutor::choose(std::span<SequenceChoice> choices, HostCopies& copies) {
  largest_.clear();
  places_.clear();
  for (const SequenceChoice& choice : choices) {
    const bool wants_logits = !choice.raw_logits.empty();
    places_.push_back(wants_logits ? std::nullopt : list_largest(choice.logits, *choice.sampler));
  }
  const Status fetched = fetch_largest();
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

void CudaExecutor::choose_drafts(std::span<BlockChoice> choices, HostCopies& copies) {
  largest_.clear();
  places_.clear();
  for (const BlockChoice& choice : choices) {
    places_.push_back(list_largest(choice.logits, *choice.sampler));
  }
  // A failure spoils guesses alone; a card that is lost ends the pass that looks at them.
  static_cast<void>(fetch_largest());
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
