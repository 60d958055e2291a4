#include "backend/emulated/launch_writes.h"

#include <fmt/format.h>

#include <algorithm>

namespace kakeya::emulated {

void LaunchWrites::begin_launch() {
  blocks_.clear();
  written_.clear();
  counters_.clear();
  begin_ = own_begin_ = UINTPTR_MAX;
  end_ = own_end_ = 0;
  clock_ = 0;
}

void LaunchWrites::begin_block(GridPlace block) {
  begin_ = std::min(begin_, own_begin_);
  end_ = std::max(end_, own_end_);
  running_ = block;
  own_ = kNotListed;
  seen_.clear();
}

std::uint32_t LaunchWrites::own() {
  if (own_ == kNotListed) {
    own_ = static_cast<std::uint32_t>(blocks_.size());
    blocks_.push_back(running_);
  }
  return own_;
}

void LaunchWrites::note(std::uintptr_t address, std::size_t bytes) {
  own_begin_ = std::min(own_begin_, address);
  own_end_ = std::max(own_end_, address + bytes);
  const Write write = {own(), clock_};
  for (std::uintptr_t unit = address / kUnitBytes; unit * kUnitBytes < address + bytes; ++unit) {
    written_[unit] = write;
  }
}

const GridPlace* LaunchWrites::find_hidden(std::uintptr_t address, std::size_t bytes) const {
  for (std::uintptr_t unit = address / kUnitBytes; unit * kUnitBytes < address + bytes; ++unit) {
    const auto found = written_.find(unit);
    if (found == written_.end() || found->second.block == own_) continue;
    const auto seen = seen_.find(found->second.block);
    if (seen == seen_.end() || found->second.when >= seen->second) {
      return &blocks_[found->second.block];
    }
  }
  return nullptr;
}

std::string LaunchWrites::arrive(std::uintptr_t counter,
                                 std::uint32_t count,
                                 std::uint32_t value,
                                 bool& is_last) {
  Counter& own = counters_[counter];
  if (value != own.arrivals.size() || (own.count != 0 && own.count != count)) {
    return fmt::format("comes to a counter that holds {} of {} where {} of {} blocks came", value,
                       count, own.arrivals.size(), own.count);
  }
  own.count = count;
  own.arrivals.push_back({this->own(), ++clock_});
  is_last = own.arrivals.size() == count;
  if (!is_last) return {};
  for (const Arrival& arrival : own.arrivals) {
    std::uint64_t& until = seen_[arrival.block];
    until = std::max(until, arrival.when);
  }
  return {};
}

std::string LaunchWrites::end_launch() const {
  for (const auto& [address, counter] : counters_) {
    if (counter.arrivals.size() == counter.count) continue;
    return fmt::format("{} of {} blocks came to a counter, which nobody sets to zero again",
                       counter.arrivals.size(), counter.count);
  }
  return {};
}

}  // namespace kakeya::emulated
