// Choosing where the largest logit is all that counts: on the device, so that logits stay there.
// Every other choice is the host's.
#include <algorithm>
#include <cmath>

#include "backend/choose.h"
#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/device/largest.h"

namespace kakeya::cuda {
namespace {

std::int64_t spans_of(std::int64_t width) {
  return (width + device::kLargestSpan - 1) / device::kLargestSpan;
}

}  // namespace

std::optional<std::size_t> CudaExecutor::find_largest(Rows rows,
                                                      const Sampler& sampler,
                                                      TokenId never) {
  const auto excluded = sampler.greedy_exclusions();
  const auto answers = static_cast<std::size_t>(rows.count * spans_of(rows.width));
  const auto room =
      static_cast<std::size_t>(num_partials_) * sizeof(float) / sizeof(device::LargestOfSpan);
  if (!excluded || excluded->size() >= device::kMostExcluded || largest_.size() + answers > room) {
    return std::nullopt;
  }
  const std::size_t first = largest_.size();
  largest_.resize(first + answers);
  device::LargestParams parameters = {rows.data.address(),
                                      rows.width,
                                      {},
                                      reinterpret_cast<device::LargestOfSpan*>(partials_) + first};
  std::ranges::fill(parameters.excluded, never);
  std::ranges::copy(*excluded, parameters.excluded);
  launch(Kernel::largest,
         {spans_of(rows.width), rows.count, device::kLargestThreads, device::kLargestWords},
         &parameters);
  return first;
}

bool CudaExecutor::read_largest(Rows rows, std::size_t first, std::span<TokenId> ids) const {
  const std::int64_t spans = spans_of(rows.width);
  for (std::int64_t row = 0; row < rows.count; ++row) {
    TokenId best = -1;
    float value = 0.0F;
    for (std::int64_t span = 0; span < spans; ++span) {
      const device::LargestOfSpan& found =
          largest_[first + static_cast<std::size_t>(row * spans + span)];
      if (std::isnan(found.value)) return false;
      if (found.id < 0 || (best >= 0 && found.value <= value)) continue;
      best = found.id;
      value = found.value;
    }
    if (best < 0) return false;
    ids[static_cast<std::size_t>(row)] = best;
  }
  return true;
}

Status CudaExecutor::fetch_largest() {
  if (largest_.empty()) return {};
  download(space(),
           DevicePointer<const device::LargestOfSpan>(
               reinterpret_cast<const device::LargestOfSpan*>(partials_)),
           std::span(largest_));
  return end({});
}

void CudaExecutor::choose(std::span<SequenceChoice> choices, HostCopies& copies) {
  largest_.clear();
  places_.clear();
  for (const SequenceChoice& choice : choices) {
    const bool wants_logits = !choice.raw_logits.empty();
    places_.push_back(wants_logits ? std::nullopt
                                   : find_largest(choice.logits, *choice.sampler, -1));
  }
  const Status fetched = fetch_largest();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    SequenceChoice& choice = choices[i];
    if (!fetched) {
      choice.count = 0;
      choice.status = fetched;
      continue;
    }
    ids_of_rows_.resize(static_cast<std::size_t>(choice.logits.count));
    if (!places_[i] || !read_largest(choice.logits, *places_[i], ids_of_rows_)) {
      Executor::choose({&choice, 1}, copies);
      continue;
    }
    accept_choices(choice,
                   [this](std::size_t row) -> Result<TokenId> { return ids_of_rows_[row]; });
  }
}

void CudaExecutor::choose_drafts(std::span<BlockChoice> choices, HostCopies& copies) {
  largest_.clear();
  places_.clear();
  for (const BlockChoice& choice : choices) {
    places_.push_back(find_largest(choice.logits, *choice.sampler, choice.never));
  }
  // A failure spoils guesses alone; a card that is lost ends the pass that looks at them.
  static_cast<void>(fetch_largest());
  for (std::size_t i = 0; i < choices.size(); ++i) {
    BlockChoice& choice = choices[i];
    if (places_[i] && read_largest(choice.logits, *places_[i], choice.out)) continue;
    Executor::choose_drafts({&choice, 1}, copies);
  }
}

}  // namespace kakeya::cuda
