#include "eval/longrun/longrun_report.h"

#include <algorithm>
#include <numeric>

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

}  // namespace kakeya::eval
