// How many distinct experts blocks of rows load.
#pragma once

#include <cstdint>

#include "eval/report/describe.h"

namespace kakeya::eval {

// Distinct experts of rows that each choose `top_k` of them evenly.
double expected_evenly(std::int64_t num_experts, std::int64_t top_k, std::int64_t rows);

// Blocks of so many rows, over all layers.
struct OverlapRow {
  std::int64_t rows = 0;
  std::int64_t blocks = 0;    // of a layer each
  std::int64_t distinct = 0;  // experts, of all blocks
  std::int64_t pairs = 0;     // of neighbours within blocks
  std::int64_t shared = 0;    // experts that both of a pair are routed to
  double uniform = 0.0;       // distinct experts of a block if rows chose evenly
  double by_frequency = 0.0;  // if they chose as often as the layer does, one for itself

  double mean_distinct() const;
};

template <typename Visitor, MaybeConst<OverlapRow> Row>
void describe(Visitor& visitor, Row& row) {
  using enum FieldRole;
  visitor.field("rows", row.rows, kChecked);
  visitor.field("blocks", row.blocks, kChecked);
  visitor.field("distinct", row.distinct, kChecked);
  visitor.derived("mean_distinct", row, &OverlapRow::mean_distinct, "headline");
  visitor.field("uniform", row.uniform, kChecked);
  visitor.field("by_frequency", row.by_frequency, kResult);
  visitor.field("pairs", row.pairs, kChecked);
  visitor.field("shared", row.shared, kResult);
}

}  // namespace kakeya::eval
