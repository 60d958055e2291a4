// One sequence: its tokens with the keys and values that go with them. Its passes run in a
// workspace that it shares with others; it checks everything that they rely on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/memory_budget.h"
#include "decode/row_encoder.h"
#include "decode/tap_sink.h"
#include "decode/timeline_plan.h"
#include "decode/workspace.h"
#include "kakeya/session.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"

namespace kakeya {

class Pass;

// The weights that rows can be restored with, and the codes that they are read from; null: none.
struct RestoringWeights {
  const Projection* projection = nullptr;
  const dflash::Drafter* drafter = nullptr;
  std::shared_ptr<const KvCodes> codes = nullptr;
};

// ForwardOutput for the host, which may read all of it.
struct HostOutput {
  HostRows logits;
  std::span<const std::int64_t> tap_points = {};
  HostRows taps = {};
};

class Timeline {
 public:
  // The referred-to objects must outlive the timeline; `restoring` as the plan was made for. The
  // workspace grows if it is too small. Errors: kResourceExhausted.
  static Result<std::unique_ptr<Timeline>> create(const Decoder& decoder,
                                                  Workspace& workspace,
                                                  const TimelinePlan& plan,
                                                  MemoryBudget& budget,
                                                  const RestoringWeights& restoring = {});

  // Forks the timeline: the fork has the same tokens and rows and no memory of its own: blocks of
  // the cache are allocated when one of the two writes into them. Nothing may be left to accept().
  // The last token is pending again if none was. `sink`: the fork of this timeline's; it holds the
  // same taps and must outlive the fork. Never fails for want of memory.
  Result<std::unique_ptr<Timeline>> fork(TapSink* sink);

  // For snapshots: the target's cache; and taking over tokens and an extent of it that was prepared
  // (KvCache::prepare_restore) and whose rows were filled. At least one token must be pending,
  // whose row gives the next one's logits; the sink's part is the caller's. `ids` may be tokens()
  // itself.
  KvCache& cache() { return cache_; }
  void restore(std::span<const TokenId> ids, const KvCache::Extent& extent);

  // Where taps go from now on; the timeline must be empty. The sink must outlive it; may be null.
  void set_tap_sink(TapSink* sink) { tap_sink_ = sink; }

  const Decoder& decoder() const { return decoder_; }
  Workspace& workspace() const { return workspace_; }
  // All tokens known, and how many of them have been run (the rest is pending).
  std::span<const TokenId> tokens() const { return tokens_; }
  std::span<const TokenId> pending() const {
    return std::span(tokens_).subspan(static_cast<std::size_t>(cache_.length()));
  }
  Position position() const { return cache_.length(); }
  // For whoever has looked at the first `length` tokens: marked() is how many of them are still
  // there, unchanged. 0 before the first call.
  void mark(Position length) { marked_ = length; }
  Position marked() const { return marked_; }
  // The most rows of one pass over its prompt.
  std::int64_t chunk() const { return plan_.chunk; }
  // The most tokens it can hold.
  std::int64_t context() const { return plan_.context; }
  // The most drafts behind one pending token in a pass.
  std::int64_t max_drafts() const { return plan_.logit_rows - 1; }

  // Adds tokens without running them. Errors: kInvalidArgument for an id outside the vocabulary
  // (names it and its index), kResourceExhausted if the context would be exceeded.
  Status push(std::span<const TokenId> ids);
  // Checks tokens for push(), with the same errors, without adding them.
  Status check_push(std::span<const TokenId> ids) const;

  // Runs the pending tokens before `end` in the plan's chunks (or of at most `chunk`, if positive).
  // Takes a turn of the workspace for each chunk. `progress` is called after each chunk, in no
  // turn, with tokens done and in all. Errors: kCancelled if it returns false and tokens remain.
  Status run_until(Position end, std::int64_t chunk = 0, const PrefillProgress& progress = {});
  // Runs all pending tokens, as run_until() does.
  Status run_pending(std::int64_t chunk = 0, const PrefillProgress& progress = {}) {
    return run_until(static_cast<Position>(tokens_.size()), chunk, progress);
  }
  // The position before which run_until() stops if one more pass shall run the rest, whose last row
  // gives the logits behind all tokens.
  Position last_chunk() const;

  // Runs all pending tokens and calls `look` with the row of each, in order, within a turn; the
  // workspace has room for the rows meanwhile. Errors: those of `look`, after which at least one
  // token is pending; kResourceExhausted. A turn for logits has at most most_logit_rows() tokens.
  Status run_with_rows(RowKind kind, const RowCallback& look);
  // The most rows of one pass whose logits are for the host to look at.
  std::int64_t most_logit_rows() const;

  // True if decoding shall forget() before each token.
  bool recomputes() const { return plan_.recompute; }
  // Makes all tokens pending again, as if none had been run.
  void forget();

  // Makes the last token pending again, so that running it gives its logits once more.
  // Errors: as KvCache::truncate; kFailedPrecondition without tokens.
  Status step_back();

  // Commits the next rows of the last pass of pending tokens and drafts, within its turn, and
  // appends the tokens chosen from their logits, of which the last one is pending then. All before
  // it, and it before a further call, must have been the drafts of their rows.
  void accept(std::span<const TokenId> ids);

  // Has memory for `length` tokens now, where the session grows. Errors: kResourceExhausted.
  Status grow(Position length) { return cache_.grow(length); }

  // For Pass. Makes room for `rows` rows behind what was run, in cache, encoder and tap sink.
  // Errors: of those; nothing that counts has changed then.
  Status reserve(std::int64_t rows);
  // The points whose layer outputs it wants of its passes; may be empty.
  std::span<const std::int64_t> tap_points() const;
  std::span<const KvLayer> layers() const { return cache_.layers(); }
  // Takes `rows` rows of a pass, with its taps, and makes what else follows from them. `bytes` is
  // what the pass read for it.
  void take_rows(std::int64_t rows, ConstRows taps, std::uint64_t bytes);
  // Commits the next `rows` of the pass without choosing tokens, within its turn.
  void commit(std::int64_t rows);
  // A part of a prompt was committed: a moment to work on what else follows from it, within the
  // turn. Errors: kResourceExhausted if the budget refuses a fork a copy.
  Status finish_chunk();

  // Errors: kInvalidArgument for an id outside the vocabulary, kResourceExhausted for more than the
  // context holds.
  Status check(std::span<const TokenId> ids) const;

  // Forgets the tokens from `length` on. Errors: as KvCache::truncate of the target's cache and of
  // the drafter's context; nothing changes then.
  Status truncate(Position length);

  // Truncates, and makes the last token that stays pending again, so that running it gives its
  // logits. Without anything to forget it does nothing. Errors: as KvCache::truncate, of one token
  // less.
  Status rewind(Position length);

  // Runs `ids` (at most max_rows) at the end and leaves them committed; logits of the last
  // output.logits.count rows and the taps that `output` names go there, not to the sink. For parity
  // tools and benchmarks. Errors: kUnimplemented for taps where rows are restored.
  Status forward(std::span<const TokenId> ids, const HostOutput& output);

  // The experts that the last layer chose for each of the `rows` rows of the last pass; empty for a
  // network without experts. For benchmarks.
  std::vector<std::int32_t> last_routing(std::int64_t rows) const;

  // Bytes of weights and cached rows that its passes so far have read; of a pass that it shared, in
  // proportion to its rows.
  std::uint64_t bytes_read() const { return bytes_read_; }

  Footprint footprint() const;

 private:
  Timeline(const Decoder& decoder,
           Workspace& workspace,
           const TimelinePlan& plan,
           KvCache cache,
           MemoryBudget& budget);
  Status check_length(Position length) const;
  // Runs the next `rows` tokens and commits them.
  Status run_chunk(std::int64_t rows);
  Status run_and_look(RowKind kind, std::int64_t rows, const RowCallback& look);
  // Lowers cache and taps to `length` positions, or changes nothing.
  Status roll_back(Position length);
  Status check_room(std::int64_t held, std::size_t wanted) const;
  // Runs a pass that has been put together and gives the host what it asks for.
  Status run_for_host(Pass& pass, std::int64_t rows, const HostOutput& output);

  const Decoder& decoder_;
  Workspace& workspace_;
  MemoryBudget& budget_;
  TimelinePlan plan_;
  KvCache cache_;
  std::unique_ptr<RowEncoder> encoder_;  // null: no rows are restored
  // The last pass, within its turn: its rows, how many of them were committed, and their taps.
  std::int64_t pass_rows_ = 0;
  std::int64_t taken_ = 0;
  ConstRows taps_;
  std::uint64_t bytes_read_ = 0;
  std::vector<TokenId> tokens_;
  Position marked_ = 0;
  TapSink* tap_sink_ = nullptr;
};

}  // namespace kakeya
