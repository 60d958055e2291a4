// Makes the low-rank codes from which evicted rows are restored: for each pass of the target, from
// the features that the projection wants of the pass's positions. Two-phase like the caches. Where
// features see the whole text, those of a text are made before its first pass.
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
  ProjectionFeatures features = ProjectionFeatures::kToken;
  std::int64_t rank = 0;
  bool one_code = false;  // of keys and values
  std::int64_t feature_width = 0;
  std::int64_t tap_width = 0;     // of all taps of a position; 0: none are wanted
  std::int64_t max_rows = 0;      // of a pass
  std::int64_t feature_rows = 0;  // whose features are made at once
  bool whole_text = false;        // feature_rows is the context then
  KvCacheSpec tokens;             // token features: the drafter's own keys and values
  WorkspacePlan workspace;        // of its passes
};

// For passes of at most `max_rows` rows in a context of `context` tokens.
RowEncoderPlan plan_row_encoder(const ProjectionConfig& projection,
                                const DrafterConfig& drafter,
                                std::int64_t context,
                                std::int64_t max_rows,
                                KvFormat format);

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

  const Projection& projection() const { return projection_; }
  // True if features are of the whole text, so that look_ahead() must come before its first pass.
  bool looks_ahead() const { return plan_.whole_text; }
  // Makes the features of a text that is run from its beginning. Errors: kResourceExhausted.
  Status look_ahead(std::span<const TokenId> ids);

  // The drafter's rows that token features take from one pass to the next; null without any.
  KvCache* tokens() { return runs_on_tokens() ? &tokens_ : nullptr; }

  // The layers whose outputs it wants of each pass; may be empty.
  std::span<const std::int64_t> taps() const;

  // Forks the encoder at the same positions; both share what is stored. The first pass of the fork
  // allocates its memory.
  std::unique_ptr<RowEncoder> fork();

  // Makes room for a pass of `rows` rows behind `first` others; replaces what was reserved. Errors:
  // kResourceExhausted; kUnimplemented for rows that look_ahead() was not told of.
  Status reserve(Position first, std::int64_t rows);
  // Writes the codes of `ids`, whose taps are given, to the reserved rows of `cache`, in the turn
  // of the target's pass. Reserve first. Returns how many bytes it has read.
  std::uint64_t encode(std::span<const TokenId> ids, ConstRows taps, const KvCache& cache);

  // These three do as KvCache's; a pass that is followed by another one counts as not committed.
  void commit(std::int64_t rows);
  Status check_truncate(Position length) const;
  void truncate(Position length);

  Footprint footprint() const;

 private:
  RowEncoder(const Projection& projection,
             const dflash::Drafter& drafter,
             Workspace& workspace,
             RowEncoderPlan plan,
             KvCache tokens,
             MemoryBudget& budget)
      : projection_(projection),
        drafter_(drafter),
        workspace_(workspace),
        budget_(budget),
        plan_(std::move(plan)),
        tokens_(std::move(tokens)) {}

  // Memory for features and codes; nothing if it is there.
  Status own_rows();
  // True if each pass adds to tokens_.
  bool runs_on_tokens() const {
    return plan_.features == ProjectionFeatures::kToken && !plan_.whole_text;
  }
  // Fills the first rows of key_codes_ and value_codes_: from features, from the token features of
  // `ids`.
  void make_codes(ConstRows keys, ConstRows values);
  void encode_tokens(std::span<const TokenId> ids);
  // Where a pass of so many rows lays out what it makes.
  dflash::DraftActivations activations(std::int64_t rows) const;

  const Projection& projection_;
  const dflash::Drafter& drafter_;
  Workspace& workspace_;
  MemoryBudget& budget_;
  RowEncoderPlan plan_;
  KvCache tokens_;
  Buffer arena_;         // of what follows; empty until it is needed in a fork
  Rows key_features_;    // [feature_rows, feature_width]; unused where taps are the features
  Rows value_features_;  // the same
  Rows key_codes_;       // [feature_rows, rank]
  Rows value_codes_;     // the same; those of keys, with one code
  std::int64_t looked_ahead_ = 0;  // positions whose codes are there before their pass
};

}  // namespace kakeya
