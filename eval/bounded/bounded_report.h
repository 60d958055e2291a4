// The report of `kakeya eval bounded`: bounded memory and drafts beside all rows and none, in one
// run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/median.h"
#include "eval/report/bootstrap.h"
#include "eval/report/describe.h"

namespace kakeya::eval {

// The fewest prompts of which a recall is claimed.
inline constexpr std::int64_t kFewestBoundedPrompts = 20;
// The share of plain's KV cache that bounded memory may take.
inline constexpr double kBoundedShare = 0.25;

struct BoundedOptions {
  std::vector<std::int64_t> lengths = {2048, 4096};
  std::vector<std::int64_t> depths = {0, 25, 50, 75, 90};
  std::int64_t samples = 4;  // prompts of a length and depth
  std::int64_t pairs = 5;
  std::int64_t max_tokens = 64;
  std::uint64_t seed = 42;
};

// One prompt, and the replies both ways, which are the same in every pair.
struct BoundedPrompt {
  std::int64_t depth = 0;
  std::int64_t index = 0;
  std::string sha256 = {};  // of the prompt's ids
  bool plain_found = false;
  bool bounded_found = false;
  std::string plain_sha256 = {};  // of the replies' ids
  std::string bounded_sha256 = {};
  std::int64_t plain_tokens = 0;
  std::int64_t bounded_tokens = 0;
};

// Prompts of one length. "plain" keeps all rows as the compute mode does and drafts nothing;
// "bounded" is a session by the command's flags.
struct BoundedLength {
  std::int64_t length = 0;
  // Reserved bytes of keys, values, codes and a drafter's context, as the sessions' ledgers say.
  std::int64_t plain_bytes = 0;
  std::int64_t bounded_bytes = 0;
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  // Decoding all replies, a sample a pair.
  std::vector<double> plain_seconds = {};
  std::vector<double> bounded_seconds = {};
  std::vector<BoundedPrompt> prompts = {};

  std::int64_t found(bool BoundedPrompt::*way) const {
    return std::ranges::count_if(prompts, [way](const BoundedPrompt& each) { return each.*way; });
  }
  std::int64_t plain_found() const { return found(&BoundedPrompt::plain_found); }
  std::int64_t bounded_found() const { return found(&BoundedPrompt::bounded_found); }
  std::int64_t tokens(std::int64_t BoundedPrompt::*way) const {
    std::int64_t sum = 0;
    for (const BoundedPrompt& each : prompts) sum += each.*way;
    return sum;
  }
  double share_of_bytes() const {
    return static_cast<double>(bounded_bytes) / static_cast<double>(plain_bytes);
  }
  // The median of the pairs' ratios of times of a token, below 1 where bounded memory is faster.
  double time_ratio() const {
    const double per_token = static_cast<double>(tokens(&BoundedPrompt::plain_tokens)) /
                             static_cast<double>(tokens(&BoundedPrompt::bounded_tokens));
    std::vector<double> ratios;
    for (std::size_t i = 0; i < std::min(plain_seconds.size(), bounded_seconds.size()); ++i) {
      ratios.push_back(per_token * bounded_seconds[i] / plain_seconds[i]);
    }
    return median(ratios);
  }
  // True if bounded memory finds what plain finds or more, within its share of bytes, and faster.
  bool all_three() const {
    return bounded_found() >= plain_found() && share_of_bytes() <= kBoundedShare &&
           time_ratio() < 1.0;
  }
};

struct BoundedReport {
  BoundedOptions options = {};
  std::vector<BoundedLength> lengths = {};
};

template <typename Visitor, MaybeConst<BoundedOptions> Options>
void describe(Visitor& visitor, Options& options) {
  using enum FieldRole;
  visitor.field("lengths", options.lengths, kChecked);
  visitor.field("depths", options.depths, kChecked);
  visitor.field("samples", options.samples, kChecked);
  visitor.field("pairs", options.pairs, kChecked);
  visitor.field("max_tokens", options.max_tokens, kChecked);
  visitor.field("seed", options.seed, kStated);
}

template <typename Visitor, MaybeConst<BoundedPrompt> Prompt>
void describe(Visitor& visitor, Prompt& prompt) {
  using enum FieldRole;
  visitor.field("depth", prompt.depth, kChecked);
  visitor.field("index", prompt.index, kChecked);
  visitor.field("sha256", prompt.sha256, kResult, FieldType::kHash);
  visitor.field("plain_found", prompt.plain_found, kResult);
  visitor.field("bounded_found", prompt.bounded_found, kResult);
  visitor.field("plain_sha256", prompt.plain_sha256, kResult, FieldType::kHash);
  visitor.field("bounded_sha256", prompt.bounded_sha256, kResult, FieldType::kHash);
  visitor.field("plain_tokens", prompt.plain_tokens, kResult);
  visitor.field("bounded_tokens", prompt.bounded_tokens, kResult);
}

template <typename Visitor, MaybeConst<BoundedLength> Length>
void describe(Visitor& visitor, Length& length) {
  using enum FieldRole;
  visitor.field("length", length.length, kChecked);
  visitor.field("plain_bytes", length.plain_bytes, kResult);
  visitor.field("bounded_bytes", length.bounded_bytes, kResult);
  visitor.derived("share_of_bytes", length, &BoundedLength::share_of_bytes, "bytes");
  visitor.derived("plain_found", length, &BoundedLength::plain_found, "recall");
  visitor.derived("bounded_found", length, &BoundedLength::bounded_found, "recall");
  visitor.field("drafted", length.drafted, kResult);
  visitor.field("accepted", length.accepted, kResult);
  visitor.derived("time_ratio", length, &BoundedLength::time_ratio, "headline");
  visitor.derived("all_three", length, &BoundedLength::all_three, "headline");
  visitor.field("plain_seconds", length.plain_seconds, kMeasured, FieldType::kSeconds);
  visitor.field("bounded_seconds", length.bounded_seconds, kMeasured, FieldType::kSeconds);
  visitor.list("prompts", length.prompts, HowMany::kOneOrMore);
}

template <typename Visitor, MaybeConst<BoundedReport> Bounded>
void describe(Visitor& visitor, Bounded& report) {
  visitor.object("options", report.options);
  visitor.list("lengths", report.lengths, HowMany::kOneOrMore);
}

}  // namespace kakeya::eval
