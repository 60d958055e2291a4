// Makes the low-rank codes from which evicted rows are restored: for each pass of the target, from
// the features that the projection wants of the pass's positions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "backend/backend.h"
#include "base/memory_budget.h"
#include "decode/workspace.h"
#include "kv/kv_cache.h"
#include "model/dflash/dflash.h"
#include "model/restore/projection.h"

namespace kakeya {

struct RowEncoderPlan {
  ProjectionFeatures features = ProjectionFeatures::kAux;
  std::int64_t rank = 0;
  bool one_code = false;  // of keys and values
  std::int64_t feature_width = 0;
  std::int64_t tap_width = 0;  // of all taps of a position
  std::int64_t max_rows = 0;   // of a pass
  WorkspacePlan workspace;     // of its passes
};

// For passes of at most `max_rows` rows.
RowEncoderPlan plan_row_encoder(const ProjectionConfig& projection,
                                const DrafterConfig& drafter,
                                std::int64_t max_rows);

// Bytes that RowEncoder::create will charge, by class, without the workspace.
Footprint estimate_row_encoder(const RowEncoderPlan& plan);

class RowEncoder {
 public:
  // The workspace must be large enough for its plan. Errors: kResourceExhausted. What is referred
  // to must outlive it.
  static Result<std::unique_ptr<RowEncoder>> create(const Projection& projection,
                                                    const dflash::Drafter& drafter,
                                                    Workspace& workspace,
                                                    const RowEncoderPlan& plan,
                                                    MemoryBudget& budget);

  // The layers whose outputs it wants of each pass.
  std::span<const std::int64_t> taps() const { return drafter_.config().target_layer_ids; }

  // Makes another encoder of this plan, without memory of its own yet.
  std::unique_ptr<RowEncoder> fork() const;

  // Makes room for a pass. Errors: kResourceExhausted.
  Status reserve();
  // Writes the codes of a pass, whose taps are given, to the reserved rows of `cache`, in the turn
  // of the target's pass. Reserve first. Returns how many bytes it has read.
  std::uint64_t encode(ConstRows taps, const KvCache& cache);

  Footprint footprint() const;

 private:
  RowEncoder(const Projection& projection,
             const dflash::Drafter& drafter,
             Workspace& workspace,
             const RowEncoderPlan& plan,
             MemoryBudget& budget)
      : projection_(projection),
        drafter_(drafter),
        workspace_(workspace),
        budget_(budget),
        plan_(plan) {}

  // Fills the first rows of key_codes_ and value_codes_ from features.
  void make_codes(ConstRows keys, ConstRows values);
  // Where a pass of so many rows lays out what it makes.
  dflash::DraftActivations activations(std::int64_t rows) const;

  const Projection& projection_;
  const dflash::Drafter& drafter_;
  Workspace& workspace_;
  MemoryBudget& budget_;
  RowEncoderPlan plan_;
  Buffer arena_;         // of what follows; empty until it is needed in a fork
  Rows key_features_;    // [max_rows, feature_width]; unused where taps are the features
  Rows value_features_;  // the same
  Rows key_codes_;       // [max_rows, rank]
  Rows value_codes_;     // the same; those of keys, with one code
};

}  // namespace kakeya
