// The prompt cache's folder for those who must not wait for it: each access is done by a thread of
// its own, and one that takes too long is one that failed. A folder that does not answer is no
// folder until it does, and one note says so.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/timed_thread.h"
#include "runtime/prefix_files.h"

namespace kakeya {

// Longest waits. Nobody waits for the writer but itself.
struct PrefixPatience {
  TimedThread::Clock::duration reader = std::chrono::seconds(2);  // all accesses for one text
  TimedThread::Clock::duration writer = std::chrono::seconds(10);
};

class TimedPrefixFiles {
 public:
  using Clock = TimedThread::Clock;
  // Errors: those of PrefixFiles::start(). A folder that does not answer is none.
  static Result<std::unique_ptr<TimedPrefixFiles>> open(PrefixFiles::Options options,
                                                        PrefixPatience patience = {});
  ~TimedPrefixFiles();
  TimedPrefixFiles(const TimedPrefixFiles&) = delete;
  TimedPrefixFiles& operator=(const TimedPrefixFiles&) = delete;

  PrefixPatience patience() const { return patience_; }
  // The deadline of a text whose first access is now.
  Clock::time_point deadline() const { return Clock::now() + patience_.reader; }

  // For calls that do not wait for the folder.
  PrefixFiles& known() { return *files_; }
  const PrefixFiles& known() const { return *files_; }

  // As those of PrefixFiles, which say more. Errors of both besides theirs: kDeadlineExceeded.
  void look_again(Clock::time_point deadline);
  // The sink is called in the caller's thread.
  Status read(const PrefixFile& file,
              const SnapshotKey& key,
              std::int64_t most_tokens,
              const PrefixFolder::Sink& sink,
              Clock::time_point deadline);
  // `goes_on` is asked now and then, and `read_all` called when `rows` are no longer needed, in the
  // caller's thread: while this waits for the folder nobody has to wait for it. Errors: kCancelled.
  Status write(const PrefixFile& file,
               const SnapshotKey& key,
               std::span<const TokenId> tokens,
               std::span<const std::byte> rows,
               const std::function<bool()>& goes_on,
               const std::function<void()>& read_all);
  void use(const PrefixName& name, Clock::time_point deadline);
  std::uint64_t remove(const PrefixName& name);

 private:
  TimedPrefixFiles(PrefixFiles::Options options, PrefixPatience patience)
      : files_(std::make_shared<PrefixFiles>(std::move(options))), patience_(patience) {}

  // Runs `call` of the files; nothing if it is late.
  template <typename Value>
  std::optional<Value> ask(std::function<Value(PrefixFiles&)> call, Clock::time_point deadline);
  Unexpected late();

  const std::shared_ptr<PrefixFiles> files_;
  const PrefixPatience patience_;
  std::atomic<bool> was_late_ = false;
  TimedThread reader_;  // whatever requests wait for
  TimedThread writer_;
};

}  // namespace kakeya
