// The report of `kakeya eval overlap`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/overlap/overlap_rows.h"
#include "eval/report/describe.h"

namespace kakeya::eval {

// The flags of a run, as the report repeats them.
struct OverlapFlagValues {
  std::int64_t limit = 0;
  std::int64_t max_tokens = 0;
  std::int64_t draft_length = 0;
};

struct OverlapSetReport {
  std::string set = {};
  std::int64_t tokens = 0;
  std::vector<OverlapRow> text = {};    // rows of texts that were given
  std::vector<OverlapRow> drafts = {};  // blocks that were drafted and verified; empty without a
                                        // drafter
};

struct OverlapReport {
  OverlapFlagValues options = {};
  std::int64_t num_experts = 0;
  std::int64_t top_k_experts = 0;
  std::vector<OverlapSetReport> sets = {};
};

template <typename Visitor, MaybeConst<OverlapFlagValues> Options>
void describe(Visitor& visitor, Options& options) {
  using enum FieldRole;
  visitor.field("limit", options.limit, kStated);
  visitor.field("max_tokens", options.max_tokens, kStated);
  visitor.field("draft_length", options.draft_length, kStated);
}

template <typename Visitor, MaybeConst<OverlapSetReport> Set>
void describe(Visitor& visitor, Set& set) {
  using enum FieldRole;
  visitor.field("set", set.set, kStated);
  visitor.field("tokens", set.tokens, kResult);
  visitor.list("text", set.text, HowMany::kAny);
  visitor.list("drafts", set.drafts, HowMany::kAny);
}

template <typename Visitor, MaybeConst<OverlapReport> Overlap>
void describe(Visitor& visitor, Overlap& report) {
  using enum FieldRole;
  visitor.object("options", report.options);
  visitor.field("num_experts", report.num_experts, kChecked);
  visitor.field("top_k_experts", report.top_k_experts, kChecked);
  visitor.list("sets", report.sets, HowMany::kOneOrMore);
}

}  // namespace kakeya::eval
