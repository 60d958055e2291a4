#include "runtime/timed_prefix_files.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status.h"

namespace kakeya {

Result<std::unique_ptr<TimedPrefixFiles>> TimedPrefixFiles::open(PrefixFiles::Options options,
                                                                 PrefixPatience patience) {
  std::unique_ptr<TimedPrefixFiles> files(new TimedPrefixFiles(std::move(options), patience));
  const auto started =
      files->ask<Status>([](PrefixFiles& all) { return all.start(); }, files->deadline());
  if (started) KAKEYA_TRY(*started);
  return files;
}

TimedPrefixFiles::~TimedPrefixFiles() {
  files_->silence();
}

Unexpected TimedPrefixFiles::late() {
  const Unexpected why = error(StatusCode::kDeadlineExceeded,
                               "{}: the folder of the prompt cache does not answer", files_->dir());
  if (!was_late_.exchange(true)) {
    files_->note(why.value().message() + ": requests go on without what is in it");
  }
  return why;
}

template <typename Value>
std::optional<Value> TimedPrefixFiles::ask(std::function<Value(PrefixFiles&)> call,
                                           Clock::time_point deadline) {
  const auto answer = std::make_shared<std::optional<Value>>();
  const auto outcome = reader_.run([files = files_, answer, call = std::move(call)](
                                       TimedThread::Caller&) { *answer = call(*files); },
                                   {.patience = patience_.reader, .deadline = deadline});
  if (outcome == TimedThread::Outcome::kDone) return *answer;
  (void)late();
  return std::nullopt;
}

void TimedPrefixFiles::look_again(Clock::time_point deadline) {
  if (!files_->is_look_due()) return;
  ask<bool>(
      [](PrefixFiles& files) {
        files.look_again();
        return true;
      },
      deadline);
}

void TimedPrefixFiles::use(const PrefixName& name, Clock::time_point deadline) {
  ask<bool>(
      [name](PrefixFiles& files) {
        files.use(name);
        return true;
      },
      deadline);
}

std::uint64_t TimedPrefixFiles::remove(const PrefixName& name) {
  return ask<std::uint64_t>([name](PrefixFiles& files) { return files.remove(name); }, deadline())
      .value_or(0);
}

Status TimedPrefixFiles::read(const PrefixFile& file,
                              const SnapshotKey& key,
                              std::int64_t most_tokens,
                              const PrefixFolder::Sink& sink,
                              Clock::time_point deadline) {
  const auto done = std::make_shared<Status>();
  const auto work = [files = files_, file, key, most_tokens, done,
                     &sink](TimedThread::Caller& caller) {
    const auto in_caller = [&](const std::function<Status()>& part) {
      Status status;
      if (caller.run([&] { status = part(); })) return status;
      return Status(error(StatusCode::kDeadlineExceeded, "nobody waits for a file any more"));
    };
    const PrefixFolder::Sink through = {
        .begin =
            [&](std::vector<TokenId> tokens, std::uint64_t row_bytes) {
              return in_caller([&] { return sink.begin(std::move(tokens), row_bytes); });
            },
        .append =
            [&](std::span<const std::byte> rows) {
              return in_caller([&] { return sink.append(rows); });
            }};
    *done = files->read(file, key, most_tokens, through);
  };
  const auto outcome = reader_.run(work, {.patience = patience_.reader, .deadline = deadline});
  return outcome == TimedThread::Outcome::kDone ? *done : Status(late());
}

Status TimedPrefixFiles::write(const PrefixFile& file,
                               const SnapshotKey& key,
                               std::span<const TokenId> tokens,
                               std::span<const std::byte> rows,
                               const std::function<bool()>& goes_on,
                               const std::function<void()>& read_all) {
  const auto done = std::make_shared<Status>();
  const auto work = [files = files_, file, key, done, rows, &read_all,
                     own = std::vector<TokenId>(tokens.begin(), tokens.end())](
                        TimedThread::Caller& caller) {
    const auto stopped = [] { return error(StatusCode::kCancelled, "a file is not written"); };
    const PrefixFiles::Fetch fetch = [&](std::uint64_t offset,
                                         std::span<std::byte> bytes) -> Status {
      const bool is_there =
          caller.run([&] { std::ranges::copy(rows.subspan(offset, bytes.size()), bytes.begin()); });
      if (!is_there) return stopped();
      return {};
    };
    // Who has left by then wants no file: its text may have been forgotten.
    const auto let_go = [&] { return caller.run(read_all) ? Status() : stopped(); };
    *done = files->write(file, key, own, rows.size(), fetch, let_go);
  };
  const auto outcome = writer_.run(work, {.patience = patience_.writer, .goes_on = goes_on});
  if (outcome == TimedThread::Outcome::kDone) return *done;
  if (outcome == TimedThread::Outcome::kLate) return late();
  return error(StatusCode::kCancelled, "{}: a file is not written", files_->dir());
}

}  // namespace kakeya
