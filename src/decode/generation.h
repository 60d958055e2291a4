// One generation of one sequence, in rounds: each drafts a block, the target verifies it in one
// pass, and the tokens that the target itself chose are committed. A round without drafts is a
// plain step.
//
//   tokens    ... t(C-1) t(C)              t(C) is known and not yet run: the pending token
//   draft     d(1) ... d(n)                guesses for positions C+1 ... C+n
//   verify    one pass over t(C) d(1) ... d(n); row i gives the logits after position C+i
//   commit    row 0's choice; while it equals d(i), row i's choice; the last one is pending next
//   rollback  rows that were not committed do not count; the next round overwrites them
//
// The output does not depend on the drafts: row i is computed from the same tokens by kernels that
// give a row the same bits whatever else is in the pass, the choice at a position is a function of
// its logits, the seed and the position, and a choice is committed only if all tokens before it in
// the pass were the committed ones. docs/speculation.md has the argument and names the test of each
// step.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "backend/choose.h"
#include "base/clock.h"
#include "decode/draft_source.h"
#include "decode/length_policy.h"
#include "decode/timeline.h"
#include "formats/drafter_config.h"
#include "kakeya/logprobs.h"
#include "kakeya/session.h"
#include "sampling/sampler.h"

namespace kakeya {

struct DecodeRequest {
  std::int64_t max_tokens = 0;
  std::span<const TokenId> stop_ids = {};
  // Drafts of a round; kAutoDraftLength: as many as the policy says.
  std::int64_t draft_length = kAutoDraftLength;
  // [V] memory for the logits that log-probabilities are taken of; empty: none are wanted.
  std::span<float> raw_logits = {};
  int top_logprobs = 0;
};

// A value that a caller moves on, round by round; nothing in it allocates. One thread at a time.
//
//   while (begin_round()) {    the first one runs what is left of the prompt, and drafts nothing
//     plan();
//     run_step();              draft, verify, choose, commit, in one turn of the workspace
//     deliver(on_token);       in no turn: the caller may take its time
//   }
class Generation {
 public:
  static constexpr std::size_t kMostSources = 3;

  // Everything is the caller's and must outlive it. `sources`, of which any may draft a round, may
  // be empty: plain steps only; at most kMostSources. `costs` learns from every pass; null with a
  // fixed length only.
  // result.ids and result.rounds grow where they have no room for max_tokens; ids that are there
  // count as generated.
  Generation(Timeline& timeline,
             Sampler& sampler,
             std::span<DraftSource* const> sources,
             DraftCosts* costs,
             const DecodeRequest& request,
             GenerateResult& result);

  bool done() const { return done_; }
  // False while a round would wait for the constraint's mask.
  bool is_ready() const { return sampler_.pace() != Constraint::Pace::kNotYet; }
  // True if no round can begin: the generation is done, or the context is full, which ends it.
  bool is_over();
  bool stopped_by_callback() const { return done_ && result_.stop_reason == StopReason::kCallback; }

  // Begins a round; false if there is none, for the generation is done or the context is full. Of a
  // first round all tokens of the timeline that are pending are run.
  bool begin_round();
  // Sets who drafts in the round, and how many tokens.
  void plan(const DraftPlan& plan) { plan_ = plan; }
  // Plans as many drafts as the request asks for or, if it leaves that open, as pay for this
  // sequence alone.
  void plan();
  // Drops the drafts that were planned.
  void drop_drafts() { plan_.length = 0; }
  // The facts for whoever plans the rounds of several sequences at once; valid until the next round
  // begins.
  RoundChoice round_choice();
  // A round over what is left of the prompt, which gives the first token.
  bool is_first() const { return !begun_; }

  // For run_step(), in this order.
  // Drafts as many tokens as were planned, or adds a job to `jobs` that does; none if that fails.
  void draft(std::vector<DraftJob>& jobs);
  // Shortens the drafts to those that the constraint allows: others cannot be accepted.
  void drop_forbidden_drafts();
  std::span<const TokenId> drafts() const {
    return std::span(drafts_).first(static_cast<std::size_t>(plan_.length));
  }
  // The arguments of Executor::choose() for the logits [1 + drafts, V] of the pass.
  SequenceChoice choice(Rows logits);
  // Commits the rows of the tokens that were chosen, and records the round with its share of what
  // the step took. Errors: of the choice; of Timeline::finish_chunk.
  Status commit(const SequenceChoice& choice, double draft_seconds, double verify_seconds);

  // Gives `on_token` what was chosen since the last call. If it says to stop, later tokens of the
  // round are taken back.
  Status deliver(const TokenCallback& on_token);
  // Takes back what was chosen and not delivered, from the timeline, the sampler and the result.
  // Errors: as Timeline::rewind.
  Status drop_undelivered();
  // Adds the time that the generation took to the result; once, at its end.
  void finish();

  Timeline& timeline() const { return timeline_; }

  // A whole round of this generation alone. Errors: those of its step.
  Status run_round();

 private:
  Position position() const { return static_cast<Position>(timeline_.tokens().size()); }
  std::int64_t remaining() const {
    return request_.max_tokens - static_cast<std::int64_t>(result_.ids.size());
  }
  std::span<const DraftOffer> offers() const { return std::span(offers_).first(sources_.size()); }
  // Bytes that timeline and sources have read.
  std::uint64_t bytes_read() const;
  void add(TokenId id);
  bool is_stop_id(TokenId id) const;
  void stop(StopReason reason);
  void end_round(double draft_seconds, double verify_seconds);

  Timeline& timeline_;
  Sampler& sampler_;
  std::span<DraftSource* const> sources_;
  DraftCosts* costs_;
  std::optional<LengthPolicy> policy_;  // nothing without sources, or with a fixed length
  DecodeRequest request_;
  GenerateResult& result_;
  Stopwatch watch_;
  // Offers of the sources for the present round, no longer than what could be committed.
  std::array<DraftOffer, kMostSources> offers_{};
  DraftPlan plan_;
  std::array<TokenId, DrafterConfig::kMaxBlockSize> drafts_{};
  std::array<TokenId, DrafterConfig::kMaxBlockSize + 1> chosen_{};
  RoundRecord round_;
  std::uint64_t bytes_before_ = 0;  // bytes_read() when it began
  double again_seconds_ = 0.0;      // that the round has run tokens again, before its pass
  bool begun_ = false;              // the first token was chosen
  std::size_t delivered_ = 0;       // of result.ids
  bool done_ = false;
};

// Generates behind the timeline's tokens, of which one pass shall run those that are pending
// (Timeline::last_chunk()), until the request is done. `on_token` is called for each token, also
// for those of a round that ends with an error; `after_first`, unless it is empty, once the prompt
// was run and the first token was delivered. Arguments are as Generation's. Sequences that share a
// workspace may do so on threads of their own: they take turns, round by round.
Status decode(Timeline& timeline,
              Sampler& sampler,
              std::span<DraftSource* const> sources,
              DraftCosts* costs,
              const DecodeRequest& request,
              const std::function<void()>& after_first,
              const TokenCallback& on_token,
              GenerateResult& result);

}  // namespace kakeya
