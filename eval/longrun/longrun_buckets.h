// The buckets of the rounds of a long run: a row for each bucket of time, in memory that does not
// grow with the run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eval/report/describe.h"

namespace kakeya::eval {

// Durations, counted in bins that are 0.5 % wide, from a microsecond to an hour.
class DurationCounts {
 public:
  DurationCounts();

  // A duration outside counts in the first or the last bin.
  void add(double seconds);
  std::int64_t count() const { return count_; }
  // Seconds that `share` of them (0 to 1) do not exceed: the middle of a bin, 0.25 % off at most. 0
  // without any.
  double quantile(double share) const;

 private:
  std::vector<std::uint32_t> bins_;
  std::int64_t count_ = 0;
};

// How long a run is to be: by minutes or by tokens, of which the other one is 0; and in how many
// buckets of equal minutes, or tokens, it is told.
struct LongRunLength {
  double minutes = 0.0;
  std::int64_t tokens = 0;
  std::int64_t buckets = 0;
};

inline constexpr std::int64_t kFewestBuckets = 6;
inline constexpr std::int64_t kMostBuckets = 1000;
// Tokens of one generation of a session: what it gives back is not kept, so that the evaluation
// itself takes no more memory in the end than in the beginning.
inline constexpr std::int64_t kLongestTurn = 1000;

// Buckets of `bucket_minutes` or somewhat less, six or more; six of a run by tokens.
std::int64_t longrun_buckets(double minutes, double bucket_minutes);

// A round, which yields tokens: a pass of the session, or a step of the scheduler.
struct LongRunRound {
  double end_seconds = 0.0;  // since the run began
  double seconds = 0.0;      // that it took; 0: tokens of a prompt's pass, which is no round
  std::int64_t tokens = 0;
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
};

// A row of the report.
struct LongRunBucket {
  double begin_seconds = 0.0;  // since the run began
  double end_seconds = 0.0;
  std::int64_t conversations = 0;  // that began in it
  std::int64_t rounds = 0;
  std::int64_t tokens = 0;
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  // Milliseconds of a round that so many of a hundred do not exceed; 0 without rounds.
  double p50_ms = 0.0;
  double p95_ms = 0.0;
  double p99_ms = 0.0;
  std::uint64_t ledger_bytes = 0;    // the most that the ledger held
  std::uint64_t resident_bytes = 0;  // of the process, as the system says, at the bucket's end

  double seconds() const { return end_seconds - begin_seconds; }
  // 0 of no time, which is where one round of a run by tokens fills several buckets.
  double tokens_per_second() const {
    return seconds() > 0.0 ? static_cast<double>(tokens) / seconds() : 0.0;
  }
};

// Sorts what happens into buckets. One thread. Times are seconds since the run began; rounds are
// told in their order, maybe after what was seen meanwhile.
class LongRunRecorder {
 public:
  // 1 to kMostBuckets buckets.
  explicit LongRunRecorder(const LongRunLength& length);

  void add(const LongRunRound& round);
  void begin_conversation(double seconds);
  void see_memory(double seconds, std::uint64_t ledger_bytes, std::uint64_t resident_bytes);

  std::int64_t tokens() const { return tokens_; }
  // How many more fill the present bucket of a run by tokens; of one by minutes: no end of them.
  std::int64_t tokens_to_boundary() const;
  // 0 to 1: how much of the run is done.
  double share_done(double seconds) const;
  bool done(double seconds) const { return share_done(seconds) >= 1.0; }

  // The rows of a run that ended at `seconds`, up to the bucket that it reached.
  std::vector<LongRunBucket> rows(double seconds) const;

 private:
  struct Bucket {
    LongRunBucket row;
    DurationCounts rounds;
  };
  // The bucket of a moment. Those that it is the first to reach begin with the memory seen last.
  Bucket& bucket_at(double seconds);
  std::int64_t index_at(double seconds) const;

  LongRunLength length_;
  std::vector<Bucket> buckets_;
  std::size_t current_ = 0;  // the last one that was reached
  std::int64_t tokens_ = 0;
  std::uint64_t last_ledger_bytes_ = 0;
  std::uint64_t last_resident_bytes_ = 0;
};

// The verdict on a whole run.
struct LongRunVerdict {
  double p50_ratio = 0.0;             // of the last bucket to the first; 0 if one has no rounds
  std::uint64_t ledger_growth = 0;    // bytes between the least and the most of any bucket
  std::uint64_t resident_growth = 0;  // bytes from the first bucket's end to the last one's; 0
                                      // where it has shrunk
  bool answers_equal = true;          // to the first one of their prompt; of no answers: true
  bool flat() const { return ledger_growth == 0; }
};
// The verdict of rows, which know of no answers.
LongRunVerdict longrun_verdict(std::span<const LongRunBucket> rows);

template <typename Visitor, MaybeConst<LongRunBucket> Bucket>
void describe(Visitor& visitor, Bucket& bucket) {
  using enum FieldRole;
  visitor.field("begin_seconds", bucket.begin_seconds, kChecked);
  visitor.field("end_seconds", bucket.end_seconds, kChecked);
  visitor.field("conversations", bucket.conversations, kChecked);
  visitor.field("rounds", bucket.rounds, kMeasured);
  visitor.field("tokens", bucket.tokens, kChecked);
  visitor.field("drafted", bucket.drafted, kMeasured);
  visitor.field("accepted", bucket.accepted, kMeasured);
  visitor.derived("tokens_per_second", bucket, &LongRunBucket::tokens_per_second, "headline");
  visitor.field("p50_ms", bucket.p50_ms, kMeasured);
  visitor.field("p95_ms", bucket.p95_ms, kMeasured);
  visitor.field("p99_ms", bucket.p99_ms, kMeasured);
  visitor.field("ledger_bytes", bucket.ledger_bytes, kMeasured);
  visitor.field("resident_bytes", bucket.resident_bytes, kMeasured);
}

template <typename Visitor, MaybeConst<LongRunVerdict> Verdict>
void describe(Visitor& visitor, Verdict& verdict) {
  visitor.derived("p50_ratio", verdict, &LongRunVerdict::p50_ratio, "headline");
  visitor.derived("ledger_growth", verdict, &LongRunVerdict::ledger_growth, "bytes");
  visitor.derived("resident_growth", verdict, &LongRunVerdict::resident_growth, "bytes");
  visitor.derived("flat", verdict, &LongRunVerdict::flat, "bytes");
  visitor.derived("answers_equal", verdict, &LongRunVerdict::answers_equal, "lossless");
}

}  // namespace kakeya::eval
