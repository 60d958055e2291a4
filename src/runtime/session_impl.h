// The session behind include/kakeya/session.h: a Timeline with a Sampler and what drafts for it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "decode/generation.h"
#include "decode/timeline.h"
#include "kakeya/session.h"
#include "runtime/model_identity.h"
#include "runtime/prompt_cache.h"
#include "runtime/session_drafts.h"
#include "runtime/session_snapshot.h"
#include "sampling/sampler.h"

namespace kakeya {

// The parts of the engine that a session uses.
struct SessionSurroundings {
  std::shared_ptr<const void> owner = nullptr;  // keeps all of this alive; null: somebody else does
  MemoryBudget& budget;
  DraftCosts& draft_costs;
  PromptCache* prompt_cache = nullptr;  // null: none
  std::span<const TokenId> model_stop_ids;
  std::span<const TokenId> suppressed;
  TableIdentity* tables = nullptr;
};

// The parts of a generation beside the session. It refers to itself: it must stay where it is.
struct PreparedGeneration {
  std::vector<TokenId> stop_ids;
  DecodeRequest request;
  bool speculates = false;  // as far as options and session say
  GenerateResult result;
};

// Errors: kInvalidArgument, naming the option (which, expected, got).
Status validate_generation(const GenerateOptions& options, std::int64_t vocab_size);

class SessionImpl final : public Session {
 public:
  // `drafts` may be null: plain decoding only. So may `sampler`: one is made when it is needed.
  SessionImpl(std::unique_ptr<Timeline> timeline,
              std::unique_ptr<Sampler> sampler,
              std::unique_ptr<SessionDrafts> drafts,
              const SessionSurroundings& engine,
              SnapshotKey key)
      : engine_(engine),
        key_(std::move(key)),
        drafts_(std::move(drafts)),
        timeline_(std::move(timeline)),
        sampler_(std::move(sampler)) {
    // A timeline that recomputes everything neither takes rows nor has any to give.
    if (engine_.prompt_cache != nullptr && !timeline_->recomputes()) {
      cursor_.emplace(*engine_.prompt_cache, key_);
    }
  }

  Status append(std::span<const TokenId> ids) override;
  Result<std::int64_t> sync(std::span<const TokenId> ids) override;
  Status prefill(const PrefillProgress& progress) override;
  Result<GenerateResult> generate(const GenerateOptions& options,
                                  const TokenCallback& on_token) override;
  Result<std::vector<TokenLogprobs>> score(std::span<const TokenId> ids, int top_logprobs) override;
  Status read_rows(std::span<const TokenId> ids, RowKind kind, const RowCallback& look) override;
  Status truncate(Position length) override;
  Result<std::unique_ptr<Session>> fork() override;
  Status snapshot(const std::string& path, std::string_view note) override;
  Result<std::string> restore(const std::string& path) override;
  std::span<const TokenId> tokens() const override { return timeline_->tokens(); }
  std::int64_t context() const override { return timeline_->context(); }
  Position position() const override { return timeline_->position(); }
  Position cached_tokens() const override { return cached_; }
  Footprint footprint() const override;

  // For the scheduler, which runs passes itself. Readies sampler and result for a generation behind
  // the tokens, of which the last are result.ids, if it was interrupted. Errors: as generate().
  Status prepare(const GenerateOptions& options, PreparedGeneration& prepared);
  Timeline& timeline() { return *timeline_; }
  Sampler& sampler() { return *sampler_; }
  // Who may draft in the generation; empty: nobody.
  std::span<DraftSource* const> sources(const PreparedGeneration& prepared) const {
    if (!prepared.speculates) return {};
    return drafts_->sources();
  }
  // Has memory for all tokens now, where the session grows. Errors: kResourceExhausted.
  Status grow();
  // Takes over what the prompt cache has of the tokens; returns PromptCache::Start::branch.
  Position start_from_cache();
  // True if both sessions keep the same rows for the same tokens.
  bool has_rows_of(const SessionImpl& other) const { return key_ == other.key_; }
  // True if the rings still have the rows that a session needs to start behind the first `length`
  // tokens.
  bool can_give(Position length);
  // Takes over the rows of the first `length` tokens, which are those of `other` too and which it
  // has run; at least one token stays pending. False: can_give() is false; nothing changes then.
  bool take_rows(SessionImpl& other, Position length);
  // Gives the prompt cache, if there is one, what was run.
  void keep_for_others();

 private:
  Status decode(PreparedGeneration& prepared, const TokenCallback& on_token);

  // Held while an operation runs, in which callbacks and other threads may ask for another one.
  class Busy {
   public:
    explicit Busy(std::atomic<bool>& busy) : busy_(&busy) {}
    Busy(Busy&& other) noexcept : busy_(std::exchange(other.busy_, nullptr)) {}
    Busy& operator=(Busy&&) = delete;
    ~Busy() {
      if (busy_ != nullptr) busy_->store(false);
    }

   private:
    std::atomic<bool>* busy_;
  };
  // Errors: kFailedPrecondition while another operation runs.
  Result<Busy> begin();

  SessionParts parts();
  // The key of a file.
  SnapshotKey saved_key() const;
  // Checks the arguments of score() before anything changes.
  Status check_score(std::span<const TokenId> ids, int top_logprobs);
  // Memory for logits as the model gave them; nothing if it is there. Errors: kResourceExhausted.
  Status own_raw_logits();
  // Runs what is pending, after start_from_cache(), up to its last token or to the pass that runs
  // the rest of it. The prompt cache gets what lies before `branch`.
  enum class PromptEnd { kLastToken, kLastPass };
  Status run_prompt(Position branch, PromptEnd end, const PrefillProgress& progress);

  SessionSurroundings engine_;
  SnapshotKey key_;
  std::unique_ptr<SessionDrafts> drafts_;
  std::unique_ptr<Timeline> timeline_;  // after drafts_: it refers to their tap sink
  std::unique_ptr<Sampler> sampler_;
  std::optional<PromptCache::Cursor> cursor_;  // nothing: it uses no prompt cache
  Buffer raw_logits_;                          // [V]; empty until log-probabilities are wanted
  Position cached_ = 0;                        // cached_tokens()
  std::atomic<bool> busy_{false};
};

}  // namespace kakeya
