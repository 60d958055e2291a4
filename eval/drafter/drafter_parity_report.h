// The report of `kakeya eval drafter-parity`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/drafter/parity_totals.h"
#include "eval/report/describe.h"

namespace kakeya::eval {

// The engine whose drafter is the reference.
struct ParityReference {
  std::string drafter_weights = {};
  std::string backend = {};
  std::string compute = {};
  std::string draft = {};
};

// The flags of a run, as the report repeats them.
struct ParityFlagValues {
  std::string set = {};
  std::int64_t limit = 0;
  std::int64_t blocks = 0;
  std::int64_t block_tokens = 0;
};

struct ParityReport {
  ParityReference reference = {};
  std::string draft = {};
  ParityFlagValues options = {};
  std::vector<ParityBlock> rows = {};
};

template <typename Visitor, MaybeConst<ParityReference> Reference>
void describe(Visitor& visitor, Reference& reference) {
  using enum FieldRole;
  visitor.field("drafter_weights", reference.drafter_weights, kResult, FieldType::kHash);
  visitor.field("backend", reference.backend, kStated);
  visitor.field("compute", reference.compute, kStated);
  visitor.field("draft", reference.draft, kStated);
}

template <typename Visitor, MaybeConst<ParityFlagValues> Options>
void describe(Visitor& visitor, Options& options) {
  using enum FieldRole;
  visitor.field("set", options.set, kStated);
  visitor.field("limit", options.limit, kStated);
  visitor.field("blocks", options.blocks, kStated);
  visitor.field("block_tokens", options.block_tokens, kChecked);
}

template <typename Visitor, MaybeConst<ParityReport> Parity>
void describe(Visitor& visitor, Parity& report) {
  visitor.object("reference", report.reference);
  visitor.field("draft", report.draft, FieldRole::kStated);
  visitor.object("options", report.options);
  visitor.list("rows", report.rows, HowMany::kOneOrMore);
  const ParityTotals totals = parity_totals(report.rows);
  visitor.object("totals", totals);
}

}  // namespace kakeya::eval
