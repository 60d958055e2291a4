#include "eval/longrun/longrun_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "eval/report/report_claims.h"
#include "eval/report/report_tables.h"

namespace kakeya::eval {

std::int64_t LongRunReport::tokens() const {
  return std::accumulate(
      buckets.begin(), buckets.end(), std::int64_t{0},
      [](std::int64_t sum, const LongRunBucket& row) { return sum + row.tokens; });
}

std::int64_t LongRunReport::conversations() const {
  return std::accumulate(
      buckets.begin(), buckets.end(), std::int64_t{0},
      [](std::int64_t sum, const LongRunBucket& row) { return sum + row.conversations; });
}

bool LongRunReport::answers_equal() const {
  return std::ranges::all_of(
      prompts, [](const LongRunAnswers& prompt) { return prompt.equal == prompt.answers; });
}

LongRunVerdict LongRunReport::verdict() const {
  LongRunVerdict verdict = longrun_verdict(buckets);
  verdict.answers_equal = answers_equal();
  return verdict;
}

std::vector<ReportField> longrun_fields() {
  return list_fields<LongRunReport>();
}

std::vector<ClaimGroup> longrun_claims(const Report& report) {
  const auto run = read_fields<LongRunReport>(report);
  if (!run) return {};
  ClaimGroup time{.title = "A round, by bucket",
                  .unit = "ms, median and 95 of 100",
                  .better = Better::kLess,
                  .interval = "median and 95 of 100 rounds"};
  ClaimGroup memory{.title = "Memory, by bucket", .unit = "MiB", .better = Better::kLess};
  const auto mebibytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / 0x1p20; };
  for (const LongRunBucket& bucket : run->buckets) {
    const std::string name = fmt::format("from {:.0f} s on", bucket.begin_seconds);
    time.claims.push_back(
        {.name = name, .value = bucket.p50_ms, .interval = {{bucket.p50_ms, bucket.p95_ms}}});
    memory.claims.push_back({.name = name + ", ledger", .value = mebibytes(bucket.ledger_bytes)});
    memory.claims.push_back(
        {.name = name + ", resident", .value = mebibytes(bucket.resident_bytes)});
  }
  return {std::move(time), std::move(memory)};
}

}  // namespace kakeya::eval
