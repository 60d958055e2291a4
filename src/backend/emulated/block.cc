#include "backend/emulated/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace kakeya::emulated {
namespace {

// Sweeps over all threads for which a warp may have to wait.
constexpr std::uint64_t kMostStarvedSweeps = 400;

bool is_same(const Place& a, const Place& b) {
  if (a.line() != b.line()) return false;
  return a.file_name() == b.file_name() || std::string_view(a.file_name()) == b.file_name();
}

std::string to_text(const Place& place) {
  const std::string_view file = place.file_name();
  const auto slash = file.find_last_of('/');
  return fmt::format("{}:{}", slash == std::string_view::npos ? file : file.substr(slash + 1),
                     place.line());
}

}  // namespace

std::string Block::run(const Work& work,
                       std::int64_t block_x,
                       std::int64_t block_y,
                       SequenceRng& random) {
  work_ = work;
  block_x_ = block_x;
  block_y_ = block_y;
  const auto threads = static_cast<std::size_t>(work.threads);
  if (!stacks_.reserve(threads)) return "the system gives no addresses for stacks";
  threads_.assign(threads, {});
  warps_.assign(threads / kWarp, {});
  shared_.assign(work.shared_words, {});
  ended_ = waiting_ = barriers_ = 0;
  last_bounds_ = {};
  counted_behind_ = kNobody;
  writes_.begin_block({block_x, block_y});
  failure_.clear();
  for (std::size_t t = 0; t < threads; ++t) prepare_fiber(stacks_[t], &Block::enter);
  Block* const before = std::exchange(running_block, this);
  schedule(random);
  running_block = before;
  return std::move(failure_);
}

// Threads in turn, from a random one on; perhaps one warp waits until no other one can go on.
void Block::schedule(SequenceRng& random) {
  const int threads = work_.threads;
  const auto warps = static_cast<std::uint64_t>(threads / kWarp);
  int starved = warps > 1 && random.below(2) == 0 ? static_cast<int>(random.below(warps)) : kNobody;
  std::uint64_t sweeps = random.below(kMostStarvedSweeps);
  while (ended_ < threads) {
    bool went_on = false;
    int t = static_cast<int>(random.below(static_cast<std::uint64_t>(threads)));
    for (int i = 0; i < threads; ++i, t = t + 1 == threads ? 0 : t + 1) {
      if (threads_[static_cast<std::size_t>(t)].state != State::kReady) continue;
      if (t / kWarp == starved) continue;
      went_on = true;
      resume(t);
      if (!failure_.empty()) return;
    }
    if (starved != kNobody && (!went_on || sweeps-- == 0)) {
      starved = kNobody;
    } else if (!went_on) {
      failure_ = deadlock();
      return;
    }
  }
}

std::string Block::deadlock() const {
  for (std::size_t t = 0; t < threads_.size(); ++t) {
    if (threads_[t].state == State::kInExchange) {
      const Warp& warp = warps_[t / kWarp];
      return fmt::format("thread {}: waits at {} for the {} lanes of its warp that are not there",
                         t, to_text(warp.place), kWarp - warp.arrived);
    }
  }
  return fmt::format("{} of {} threads wait at the barrier {}, the others never come", waiting_,
                     work_.threads, to_text(barrier_));
}

void Block::enter() {
  enter_fiber(running_block->scheduler_);
  running_block->work_.body(running_block->work_.parameters);
  running_block->end_thread();
}

void Block::resume(int thread) {
  current_ = thread;
  switch_fiber(scheduler_, stacks_[static_cast<std::size_t>(thread)]);
}

void Block::suspend(State state) {
  const auto self = static_cast<std::size_t>(current_);
  threads_[self].state = state;
  switch_fiber(stacks_[self], scheduler_);
}

void Block::fail(std::string message) {
  failure_ = fmt::format("thread {}: {}", current_, message);
  message.clear();
  // Nobody switches back.
  for (;;) suspend(State::kEnded);
}

void Block::end_thread() {
  Warp& warp = own_warp();
  if (warp.arrived > 0) {
    fail(fmt::format("ends while {} lanes of its warp wait for it at {}", warp.arrived,
                     to_text(warp.place)));
  }
  if (waiting_ > 0) {
    fail(fmt::format("ends while {} threads wait for it at the barrier {}", waiting_,
                     to_text(barrier_)));
  }
  if (threads_[static_cast<std::size_t>(current_)].is_early) {
    fail("ends without having waited for the launches before it");
  }
  if (!threads_[static_cast<std::size_t>(current_)].copies.empty()) {
    fail("ends with copies to shared memory that it did not await");
  }
  if (threads_[static_cast<std::size_t>(current_)].has_written) has_published_ = false;
  ++warp.ended;
  ++ended_;
  for (;;) suspend(State::kEnded);
}

void Block::sync_block(Place place) {
  if (ended_ > 0) {
    fail(fmt::format("reaches the barrier {} which {} threads never will: they have ended",
                     to_text(place), ended_));
  }
  if (waiting_ == 0) {
    barrier_ = place;
  } else if (!is_same(barrier_, place)) {
    fail(fmt::format("reaches the barrier {} while others wait at {}", to_text(place),
                     to_text(barrier_)));
  }
  if (++waiting_ < work_.threads) {
    suspend(State::kAtBarrier);
    return;
  }
  waiting_ = 0;
  ++barriers_;
  for (Thread& thread : threads_) thread.state = State::kReady;
}

bool Block::meet(Place place, void* own) {
  Warp& warp = own_warp();
  if (warp.ended > 0) {
    fail(fmt::format("waits at {} for lanes of its warp that have ended", to_text(place)));
  }
  if (warp.arrived == 0) {
    warp.place = place;
  } else if (!is_same(warp.place, place)) {
    fail(fmt::format("is at {} while lanes of its warp wait at {}: they diverged", to_text(place),
                     to_text(warp.place)));
  }
  threads_[static_cast<std::size_t>(current_)].own = own;
  if (++warp.arrived < kWarp) {
    suspend(State::kInExchange);
    return false;
  }
  warp.arrived = 0;
  const std::size_t first = static_cast<std::size_t>(current_ / kWarp) * kWarp;
  for (std::size_t l = first; l < first + kWarp; ++l) threads_[l].state = State::kReady;
  return true;
}

void Block::sync_warp(Place place) {
  if (meet(place, nullptr)) ++own_warp().syncs;
}

void Block::exchange(Place place, void* own, void (*combine)(void* const* lanes)) {
  if (!meet(place, own)) return;
  void* lanes[kWarp];
  const std::size_t first = static_cast<std::size_t>(current_ / kWarp) * kWarp;
  for (std::size_t l = 0; l < kWarp; ++l) lanes[l] = threads_[first + l].own;
  combine(lanes);
}

void Block::refuse_early(const char* what, Place place) {
  fail(fmt::format("{} memory at {} before it has waited for the launches before it", what,
                   to_text(place)));
}

void Block::refuse_hidden(const GridPlace& writer, Place place) {
  fail(
      fmt::format("reads at {} what block ({}, {}) of the launch has written, whose writes it need "
                  "not see",
                  to_text(place), writer.x, writer.y));
}

bool Block::last_of(std::uint32_t* counter, std::uint32_t count, Place place) {
  check_not_early("writes", place);
  sync_block(place);
  if (counted_behind_ != barriers_) {
    counted_behind_ = barriers_;
    std::uint32_t value = 0;
    std::memcpy(&value, counter, sizeof(value));
    const std::string wrong =
        writes_.arrive(reinterpret_cast<std::uintptr_t>(counter), count, value, is_last_);
    if (!wrong.empty()) fail(fmt::format("{} at {}", wrong, to_text(place)));
    value = is_last_ ? 0 : value + 1;
    std::memcpy(counter, &value, sizeof(value));
  }
  const bool is_last = is_last_;
  sync_block(place);
  return is_last;
}

bool WrittenMemory::meets(std::uintptr_t address, std::size_t bytes) {
  if (!is_sorted_) {
    std::sort(units_.begin(), units_.end());
    units_.erase(std::unique(units_.begin(), units_.end()), units_.end());
    is_sorted_ = true;
  }
  const auto found = std::lower_bound(units_.begin(), units_.end(), address / kUnitBytes);
  return found != units_.end() && *found * kUnitBytes < address + bytes;
}

void Block::check_early(const void* from, std::size_t bytes, Place place) {
  if (!written_before_.meets(reinterpret_cast<std::uintptr_t>(from), bytes)) return;
  fail(fmt::format("reads at {} what the launch before has written, before it has waited for it",
                   to_text(place)));
}

void Block::refuse_access(const char* what,
                          std::uintptr_t address,
                          std::size_t bytes,
                          std::size_t alignment,
                          Bounds bounds,
                          Place place) {
  if (bounds.begin == bounds.end) {
    fail(fmt::format("{} {} bytes at {} through a pointer to no memory of the device", what, bytes,
                     to_text(place)));
  }
  const auto offset = static_cast<std::int64_t>(address - bounds.begin);
  if (address >= bounds.begin && address + bytes <= bounds.end) {
    fail(fmt::format("{} {} bytes at {} at byte {} of an allocation, which is not a multiple of {}",
                     what, bytes, to_text(place), offset, alignment));
  }
  fail(fmt::format("{} {} bytes at {} out of bounds: at byte {} of an allocation of {}", what,
                   bytes, to_text(place), offset, bounds.end - bounds.begin));
}

Block::Word& Block::shared_word(int word, const char* what, Place place) {
  if (word < 0 || static_cast<std::size_t>(word) >= shared_.size()) {
    fail(fmt::format("{} word {} of {} in shared memory at {}", what, word, shared_.size(),
                     to_text(place)));
  }
  return shared_[static_cast<std::size_t>(word)];
}

Block::Access Block::own_access() const {
  return {current_, barriers_, warps_[static_cast<std::size_t>(current_ / kWarp)].syncs};
}

// True if a barrier lies between that access and this thread, or the access is the thread's own.
bool Block::is_ordered(const Access& access) const {
  const Access now = own_access();
  if (access.thread == kNobody || access.thread == current_ || access.barriers < now.barriers) {
    return true;
  }
  if (access.thread == kSeveralWarps) return false;
  const int warp = access.thread >= kWholeWarp ? access.thread - kWholeWarp : access.thread / kWarp;
  return warp == current_ / kWarp && access.syncs < now.syncs;
}

void Block::note_read(Word& word) {
  Access now = own_access();
  const Access& before = word.read;
  if (before.thread != kNobody && before.thread != current_ && before.barriers == now.barriers) {
    const int own = current_ / kWarp;
    const int warp = before.thread >= kSeveralWarps ? kNobody
                     : before.thread >= kWholeWarp  ? before.thread - kWholeWarp
                                                    : before.thread / kWarp;
    now.thread = warp == own ? kWholeWarp + own : kSeveralWarps;
  }
  word.read = now;
}

std::uint32_t Block::read_shared(int index, Place place) {
  Word& word = shared_word(index, "reads", place);
  if (word.written.thread == kNobody) {
    fail(fmt::format("reads word {} of shared memory at {}, which nobody wrote", index,
                     to_text(place)));
  }
  if (word.is_awaited) {
    fail(fmt::format("reads word {} of shared memory at {} while a copy to it is under way", index,
                     to_text(place)));
  }
  if (!is_ordered(word.written)) {
    fail(
        fmt::format("reads word {} of shared memory at {} with no barrier since thread {} wrote it",
                    index, to_text(place), word.written.thread));
  }
  note_read(word);
  return word.value;
}

void Block::check_multiple(int word, int words, Place place) {
  if (word % words == 0) return;
  fail(fmt::format("is at {} at word {} of shared memory, which is not a multiple of {}",
                   to_text(place), word, words));
}

Block::Word& Block::writable_word(int index, Place place) {
  Word& word = shared_word(index, "writes", place);
  if (word.is_awaited) {
    fail(fmt::format("writes word {} of shared memory at {} while a copy to it is under way", index,
                     to_text(place)));
  }
  if (!is_ordered(word.written) || !is_ordered(word.read)) {
    fail(fmt::format(
        "writes word {} of shared memory at {} with no barrier since others read or wrote it",
        index, to_text(place)));
  }
  return word;
}

void Block::write_shared(int index, std::uint32_t value, Place place) {
  Word& word = writable_word(index, place);
  word.value = value;
  word.written = own_access();
}

void Block::begin_copy(int index, const void* from, Place place) {
  check_old(from, kCopyWords * sizeof(std::uint32_t), place);
  check_seen(from, kCopyWords * sizeof(std::uint32_t), place);
  note_read_of_memory(from, kCopyWords * sizeof(std::uint32_t));
  check_multiple(index, kCopyWords, place);
  for (int i = 0; i < kCopyWords; ++i) {
    Word& word = writable_word(index + i, place);
    word.is_awaited = true;
    word.written = own_access();
  }
  Thread& own = threads_[static_cast<std::size_t>(current_)];
  own.copies.push_back({index, from, own.groups});
}

void Block::await_copies(int later) {
  Thread& own = threads_[static_cast<std::size_t>(current_)];
  const auto is_later = [&](const Copy& copy) { return copy.group >= own.groups - later; };
  for (const Copy& copy : own.copies) {
    if (is_later(copy)) continue;
    for (std::size_t i = 0; i < kCopyWords; ++i) {
      Word& word = shared_[static_cast<std::size_t>(copy.word) + i];
      std::memcpy(&word.value, static_cast<const std::uint32_t*>(copy.from) + i,
                  sizeof(word.value));
      word.is_awaited = false;
      word.written = own_access();
    }
  }
  const auto first_later = std::find_if(own.copies.begin(), own.copies.end(), is_later);
  own.copies.erase(own.copies.begin(), first_later);
}

}  // namespace kakeya::emulated
