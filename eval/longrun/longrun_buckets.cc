#include "eval/longrun/longrun_buckets.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kakeya::eval {
namespace {

constexpr double kShortest = 1e-6;  // seconds: where the first bin begins
constexpr double kLongest = 3600.0;
constexpr double kBinRatio = 1.005;  // a bin's end, in times of its beginning

double bins_before(double seconds) {
  return std::log(seconds / kShortest) / std::log(kBinRatio);
}

}  // namespace

DurationCounts::DurationCounts()
    : bins_(static_cast<std::size_t>(std::ceil(bins_before(kLongest)))) {}

void DurationCounts::add(double seconds) {
  const double bin = bins_before(std::clamp(seconds, kShortest, kLongest));
  ++bins_[std::min(static_cast<std::size_t>(bin), bins_.size() - 1)];
  ++count_;
}

double DurationCounts::quantile(double share) const {
  if (count_ == 0) return 0.0;
  const auto wanted = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::ceil(share * static_cast<double>(count_))));
  std::int64_t seen = 0;
  std::size_t bin = 0;
  while (bin + 1 < bins_.size() && (seen += bins_[bin]) < wanted) ++bin;
  return kShortest * std::pow(kBinRatio, static_cast<double>(bin) + 0.5);
}

std::int64_t longrun_buckets(double minutes, double bucket_minutes) {
  if (minutes <= 0.0) return kFewestBuckets;
  // Minutes that are a whole number of buckets stay so, whatever the division rounds to.
  const double wanted = std::ceil(minutes / bucket_minutes - 1e-9);
  return std::max(kFewestBuckets, static_cast<std::int64_t>(std::min(wanted, 1e15)));
}

LongRunRecorder::LongRunRecorder(const LongRunLength& length)
    : length_(length), buckets_(static_cast<std::size_t>(length.buckets)) {}

double LongRunRecorder::share_done(double seconds) const {
  const double share = length_.tokens > 0
                           ? static_cast<double>(tokens_) / static_cast<double>(length_.tokens)
                           : seconds / (60.0 * length_.minutes);
  return std::clamp(share, 0.0, 1.0);
}

std::int64_t LongRunRecorder::index_at(double seconds) const {
  const std::int64_t last = length_.buckets - 1;
  if (length_.tokens > 0) return std::min(tokens_ * length_.buckets / length_.tokens, last);
  const double index = share_done(seconds) * static_cast<double>(length_.buckets);
  return std::min(static_cast<std::int64_t>(index), last);
}

std::int64_t LongRunRecorder::tokens_to_boundary() const {
  if (length_.tokens == 0) return std::numeric_limits<std::int64_t>::max();
  const std::int64_t next = index_at(0.0) + 1;
  return (next * length_.tokens + length_.buckets - 1) / length_.buckets - tokens_;
}

LongRunRecorder::Bucket& LongRunRecorder::bucket_at(double seconds) {
  const auto index = static_cast<std::size_t>(index_at(seconds));
  while (current_ < index) {
    LongRunBucket& row = buckets_[++current_].row;
    row.begin_seconds = seconds;
    if (length_.tokens == 0) {
      row.begin_seconds = 60.0 * length_.minutes * static_cast<double>(current_) /
                          static_cast<double>(length_.buckets);
    }
    row.ledger_bytes = last_ledger_bytes_;
    row.resident_bytes = last_resident_bytes_;
  }
  return buckets_[index];
}

void LongRunRecorder::add(const LongRunRound& round) {
  Bucket& bucket = bucket_at(round.end_seconds);
  bucket.row.tokens += round.tokens;
  bucket.row.drafted += round.drafted;
  bucket.row.accepted += round.accepted;
  if (round.seconds > 0.0) {
    ++bucket.row.rounds;
    bucket.rounds.add(round.seconds);
  }
  tokens_ += round.tokens;
  bucket_at(round.end_seconds);  // of a run by tokens the next one begins here
}

void LongRunRecorder::begin_conversation(double seconds) {
  ++bucket_at(seconds).row.conversations;
}

void LongRunRecorder::see_memory(double seconds,
                                 std::uint64_t ledger_bytes,
                                 std::uint64_t resident_bytes) {
  last_ledger_bytes_ = ledger_bytes;
  last_resident_bytes_ = resident_bytes;
  LongRunBucket& row = bucket_at(seconds).row;
  row.ledger_bytes = std::max(row.ledger_bytes, ledger_bytes);
  row.resident_bytes = resident_bytes;
}

std::vector<LongRunBucket> LongRunRecorder::rows(double seconds) const {
  std::vector<LongRunBucket> rows;
  for (std::size_t i = 0; i <= current_; ++i) {
    LongRunBucket row = buckets_[i].row;
    row.end_seconds = i == current_ ? seconds : buckets_[i + 1].row.begin_seconds;
    row.p50_ms = 1e3 * buckets_[i].rounds.quantile(0.50);
    row.p95_ms = 1e3 * buckets_[i].rounds.quantile(0.95);
    row.p99_ms = 1e3 * buckets_[i].rounds.quantile(0.99);
    rows.push_back(row);
  }
  return rows;
}

LongRunVerdict longrun_verdict(std::span<const LongRunBucket> rows) {
  if (rows.empty()) return {};
  const LongRunBucket& first = rows.front();
  const LongRunBucket& last = rows.back();
  LongRunVerdict verdict;
  if (first.p50_ms > 0.0) verdict.p50_ratio = last.p50_ms / first.p50_ms;
  const auto [least, most] = std::ranges::minmax(rows, {}, &LongRunBucket::ledger_bytes);
  verdict.ledger_growth = most.ledger_bytes - least.ledger_bytes;
  verdict.resident_growth =
      last.resident_bytes - std::min(last.resident_bytes, first.resident_bytes);
  return verdict;
}

}  // namespace kakeya::eval
