// One block of threads in the emulator, as device code sees it: each operation checks that a card
// would do what the code means, and ends the launch with a message where it would not.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backend/emulated/fiber.h"
#include "backend/emulated/launch_writes.h"
#include "base/random.h"

namespace kakeya::emulated {

inline constexpr int kWarp = 32;

// A line of device code: std::source_location, which clang 14 lacks with this standard library.
class Place {
 public:
  Place() = default;
  static Place current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  const char* file_name() const { return file_; }
  int line() const { return line_; }

 private:
  Place(const char* file, int line) : file_(file), line_(line) {}

  const char* file_ = "";
  int line_ = 0;
};

// Addresses [begin, end) that belong together: nothing else may be reached from one of them.
struct Bounds {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

// Where device code may read and write.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // The bounds of the allocation around `address`; empty if there is none.
  virtual Bounds bounds_of(const void* address) const = 0;
};

// The places of the device's memory that a launch has written to.
class WrittenMemory {
 public:
  void note(std::uintptr_t address) {
    const std::uintptr_t unit = address / kUnitBytes;
    if (!units_.empty() && units_.back() == unit) return;
    units_.push_back(unit);
    is_sorted_ = false;
  }
  void clear() { units_.clear(); }
  void add(const WrittenMemory& other) {
    units_.insert(units_.end(), other.units_.begin(), other.units_.end());
    is_sorted_ = false;
  }
  // True if something was written of the bytes [address, address + bytes), or close to them.
  bool meets(std::uintptr_t address, std::size_t bytes);

 private:
  static constexpr std::uintptr_t kUnitBytes = 16;

  std::vector<std::uintptr_t> units_;
  bool is_sorted_ = true;
};

// The bytes that kernels read of some memory of the device, by loads and by copies.
struct CountedReads {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::uint64_t bytes = 0;
};

class Block {
 public:
  explicit Block(const DeviceMemory& memory) : memory_(memory) {}

  struct Work {
    void (*body)(const void* parameters) = nullptr;
    const void* parameters = nullptr;
    int threads = 0;
    std::uint32_t shared_words = 0;
  };
  // Runs all threads of a block. Returns what went wrong, with the thread; empty if nothing did.
  std::string run(const Work& work,
                  std::int64_t block_x,
                  std::int64_t block_y,
                  SequenceRng& random);

  // The threads call the functions below.
  int thread() const { return current_; }
  int threads() const { return work_.threads; }
  std::int64_t block_x() const { return block_x_; }
  std::int64_t block_y() const { return block_y_; }

  void sync_block(Place place);
  void sync_warp(Place place);
  // When all lanes of the warp are here, `combine` is handed what each of them has, and writes
  // there what each of them gets.
  void exchange(Place place, void* own, void (*combine)(void* const* lanes));

  Bounds bounds_of(const void* address) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (at < last_bounds_.begin || at >= last_bounds_.end)
      last_bounds_ = memory_.bounds_of(address);
    return last_bounds_;
  }
  [[noreturn]] void refuse_access(const char* what,
                                  std::uintptr_t address,
                                  std::size_t bytes,
                                  std::size_t alignment,
                                  Bounds bounds,
                                  Place place);
  std::uint32_t read_shared(int word, Place place);
  // Fails where `word` is no multiple of `words`.
  void check_multiple(int word, int words, Place place);
  void write_shared(int word, std::uint32_t value, Place place);
  // Begins a copy of kCopyWords words to `word` on, which nobody may read or write until this
  // thread has awaited it, nor other threads without a barrier behind that.
  void begin_copy(int word, const void* from, Place place);
  // Closes the thread's group of copies, perhaps without any.
  void end_copies() { ++threads_[static_cast<std::size_t>(current_)].groups; }
  // Awaits the groups that the thread has closed, but for the last `later`.
  void await_copies(int later);

  // Launches follow of which none runs at the same time as one before them.
  void begin_list() {
    written_.clear();
    lets_early_ = false;
    lets_next_ = false;
    has_published_ = true;
  }
  // Another launch follows. The one before it may have let it start before it had waited itself, so
  // that launches in front of both still run. Or it has not let it start at all, and all that it
  // has written is seen.
  void begin_launch() {
    if (std::exchange(lets_early_, false)) written_.add(written_before_);
    if (has_published_ && !lets_next_) written_.clear();
    lets_next_ = false;
    has_published_ = true;
    std::swap(written_, written_before_);
    written_.clear();
    writes_.begin_launch();
  }
  // Returns what is wrong when all blocks of a launch have ended; empty if nothing is.
  std::string end_launch() const { return writes_.end_launch(); }

  // The thread runs before the launches in front of its own have ended, until it waits for them.
  // Meanwhile it may begin copies and load_fresh() alone, of what the launch before has not
  // written, and it must wait before it ends.
  void start_early() { threads_[static_cast<std::size_t>(current_)].is_early = true; }
  void wait_for_previous() { threads_[static_cast<std::size_t>(current_)].is_early = false; }
  void let_next_start() {
    lets_next_ = true;
    lets_early_ = lets_early_ || threads_[static_cast<std::size_t>(current_)].is_early;
  }
  // Counts reads of the memory that `counted` names, which must outlive the block; null: none.
  void count_reads(CountedReads* counted) { counted_ = counted; }
  void note_read_of_memory(const void* from, std::size_t bytes) {
    const auto at = reinterpret_cast<std::uintptr_t>(from);
    if (counted_ != nullptr && at >= counted_->begin && at < counted_->end) {
      counted_->bytes += bytes;
    }
  }

  // Fails while the thread is early.
  void check_not_early(const char* what, Place place) {
    if (threads_[static_cast<std::size_t>(current_)].is_early) refuse_early(what, place);
  }
  // Fails while the thread is early, if a launch has written there that may still run.
  void check_old(const void* from, std::size_t bytes, Place place) {
    if (threads_[static_cast<std::size_t>(current_)].is_early) check_early(from, bytes, place);
  }
  void publish_writes() { threads_[static_cast<std::size_t>(current_)].has_written = false; }
  void note_written(const void* address, std::size_t bytes) {
    threads_[static_cast<std::size_t>(current_)].has_written = true;
    written_.note(reinterpret_cast<std::uintptr_t>(address));
    writes_.note(reinterpret_cast<std::uintptr_t>(address), bytes);
  }
  // Fails if another block of the launch has written there, and this one need not see it.
  void check_seen(const void* from, std::size_t bytes, Place place) {
    const auto at = reinterpret_cast<std::uintptr_t>(from);
    if (const GridPlace* writer = writes_.hidden_writer(at, bytes)) refuse_hidden(*writer, place);
  }
  // True in the block that comes last of `count` blocks of the launch, which sees what the others
  // have written. The counter holds zero before the launch and behind it.
  bool last_of(std::uint32_t* counter, std::uint32_t count, Place place);

  static constexpr int kCopyWords = 4;

 private:
  enum class State : std::uint8_t { kReady, kAtBarrier, kInExchange, kEnded };
  struct Copy {
    int word;
    const void* from;
    int group;
  };
  struct Thread {
    State state = State::kReady;
    void* own = nullptr;
    bool is_early = false;
    bool has_written = false;  // what it has not published
    int groups = 0;            // closed ones
    std::vector<Copy> copies;
  };
  struct Warp {
    int arrived = 0;
    int ended = 0;
    int syncs = 0;  // completed ones of sync_warp()
    Place place;
  };
  // When a thread last read or wrote a word.
  struct Access {
    int thread = kNobody;
    int barriers = 0;  // of the block, completed before it
    int syncs = 0;     // of its warp
  };
  struct Word {
    std::uint32_t value = 0;
    bool is_awaited = false;  // a copy to it is under way
    Access written;
    Access read;
  };
  static constexpr int kNobody = -1;
  static constexpr int kWholeWarp = 1 << 16;  // readers: several of warp number thread - kWholeWarp
  static constexpr int kSeveralWarps = 1 << 20;

  [[noreturn]] void refuse_early(const char* what, Place place);
  [[noreturn]] void refuse_hidden(const GridPlace& writer, Place place);
  void check_early(const void* from, std::size_t bytes, Place place);
  static void enter();
  void schedule(SequenceRng& random);
  void resume(int thread);
  void suspend(State state);
  void end_thread();
  std::string deadlock() const;
  [[noreturn]] void fail(std::string message);
  Word& shared_word(int word, const char* what, Place place);
  Word& writable_word(int word, Place place);
  bool is_ordered(const Access& access) const;
  void note_read(Word& word);
  Access own_access() const;
  Warp& own_warp() { return warps_[static_cast<std::size_t>(current_ / kWarp)]; }
  // Waits for all lanes; true in the last one.
  bool meet(Place place, void* own);

  const DeviceMemory& memory_;
  CountedReads* counted_ = nullptr;
  FiberStacks stacks_;
  Fiber scheduler_;
  Work work_;
  std::int64_t block_x_ = 0;
  std::int64_t block_y_ = 0;
  int current_ = 0;
  int ended_ = 0;
  int waiting_ = 0;  // at the barrier
  int barriers_ = 0;
  Place barrier_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<Word> shared_;
  Bounds last_bounds_;
  WrittenMemory written_;         // by this launch
  WrittenMemory written_before_;  // by those that may still run when it starts
  LaunchWrites writes_;
  int counted_behind_ = kNobody;  // the barrier behind which the block came to a counter
  bool is_last_ = false;
  bool lets_early_ = false;    // it has let the next one start before it waited
  bool lets_next_ = false;     // it has let it start at all
  bool has_published_ = true;  // all that threads have written that have ended
  std::string failure_;
};

inline constinit thread_local Block* running_block = nullptr;

// The block whose threads run on this thread of the host.
inline Block* running() {
  return running_block;
}

}  // namespace kakeya::emulated
