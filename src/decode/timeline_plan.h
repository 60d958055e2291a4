// The plan of a session's memory, made from its options before anything is allocated.
#pragma once

#include <cstdint>
#include <optional>

#include "decode/comparison.h"
#include "decode/row_encoder.h"
#include "decode/workspace.h"
#include "kakeya/options.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"

namespace kakeya {

struct TimelinePlan {
  KvCacheSpec cache;
  WorkspacePlan workspace;  // of its passes alone
  std::int64_t context = 0;
  std::int64_t max_rows = 0;
  std::int64_t chunk = 0;       // rows of one pass over a prompt; at most max_rows
  std::int64_t logit_rows = 1;  // most rows of logits of one pass
  KvLayerPlan drafter;          // of a drafter's context; its full layers drop what the target's do
  std::optional<RowEncoderPlan> encoder;  // if rows are restored
  std::optional<KvBits> coded;            // if full layers are stored by calibrated codes
  bool recompute = false;                 // Comparison::recompute
};

// The configurations of what rows can be restored with; null: none.
struct RestoringConfigs {
  const ProjectionConfig* projection = nullptr;
  const DrafterConfig* drafter = nullptr;
};

// Errors: kUnimplemented for a model whose rows cannot be restored, which says why.
Status check_restorable(const ModelConfig& config);

// The workspace of the target's passes of `max_rows` rows, of which `logit_rows` have logits. Sinks
// of taps plan their own.
WorkspacePlan plan_target_passes(const ModelConfig& config,
                                 std::int64_t max_rows,
                                 std::int64_t logit_rows);

// Plans a session of these options; passes have room for `logit_rows` rows at least. Errors:
// kInvalidArgument for a context beyond the model's limit, a size that is not positive, a way to
// keep keys and values that the model's heads do not allow, or rows to be restored from nothing.
Result<TimelinePlan> plan_timeline(const ModelConfig& config,
                                   const SessionOptions& options,
                                   Compute compute,
                                   std::int64_t logit_rows,
                                   const RestoringConfigs& restoring = {},
                                   const Comparison& comparison = {});

// Bytes that Timeline::create will charge, by class, without the workspace.
Footprint estimate_timeline(const TimelinePlan& plan);
// The bytes that `tokens` tokens take besides, where the session grows.
Footprint timeline_growth(const TimelinePlan& plan, Position tokens);

}  // namespace kakeya
