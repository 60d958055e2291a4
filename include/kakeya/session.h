// A session: one timeline of tokens with its memory. Tokens in, tokens out; text is a layer above
// (kakeya/tokenizer.h). One thread at a time: while an operation runs, every other one that changes
// or reads the session as a whole is refused with kFailedPrecondition, from its own callbacks too.
// After fork(), any call that runs tokens may fail with kResourceExhausted, for the budget may
// refuse a copy; the session is as before that pass then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/logprobs.h"
#include "kakeya/memory.h"
#include "kakeya/options.h"
#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya {

enum class StopReason : std::uint8_t {
  kStopId,     // a stop id was generated; it is the last output id
  kMaxTokens,  // as many as asked for
  kContext,    // the context is full
  kCallback,   // on_token returned false
};

// "stop_id", "max_tokens", "context", "callback"
std::string_view stop_reason_name(StopReason reason);

// The proposer of a round's tokens.
enum class DraftKind : std::uint8_t {
  kNone,
  kDflash,  // a drafter
  kNgram,   // what followed the same tokens before
  kForm,    // what a constraint leaves no choice about
};

// "none", "dflash", "ngram", "form"
std::string_view draft_kind_name(DraftKind kind);

// Why a round drafted as many tokens as it did, or none.
enum class DraftReason : std::uint8_t {
  kNoOffer,   // nothing could be drafted: no text like this one, a form that is not ready, the end
  kPlainDue,  // a plain step now and then tells what one takes
  kNoGain,    // drafts are thought to cost more than they give
  kSpent,     // they might pay, but the request has lost what it may lose by drafting
  kTry,       // a short block finds out
  kGain,      // the length, and the proposer, that are thought to be fastest
  kAsked,     // GenerateOptions::draft_length
};

inline constexpr std::size_t kDraftReasons = 7;

// "no offer", "plain step due", "no gain", "spent", "try", "gain", "asked"
std::string_view draft_reason_name(DraftReason reason);

// One pass of the target after the prefill: a plain step when nothing was drafted. Of a pass that
// requests share, seconds and bytes are this request's part, by rows.
struct RoundRecord {
  double start_seconds = 0.0;  // since decoding began
  double draft_seconds = 0.0;
  double verify_seconds = 0.0;  // the target's pass and choosing tokens from its logits
  std::uint64_t bytes = 0;      // weights and cached rows read by both
  std::int32_t drafted = 0;
  std::int32_t accepted = 0;   // leading drafts that the target agreed with
  std::int32_t committed = 0;  // tokens that the round gave: accepted + 1, less at a stop
  DraftKind kind = DraftKind::kNone;
  DraftReason reason = DraftReason::kNoOffer;
};

struct GenerateResult {
  std::vector<TokenId> ids;  // with the stop id, if one ended it
  // One for each id, with GenerateOptions::logprobs; else empty.
  std::vector<TokenLogprobs> logprobs;
  StopReason stop_reason = StopReason::kMaxTokens;
  double prefill_seconds = 0.0;     // running the tokens that were pending, until the first logits
  double decode_seconds = 0.0;      // from there to the last token
  std::int64_t prefill_tokens = 0;  // how many those were, without any from the prompt cache
  std::vector<RoundRecord> rounds;  // the target's passes after the prefill, in order
  std::int64_t drafted = 0;         // tokens proposed, in all rounds
  std::int64_t accepted = 0;        // of those, agreed with
  // Seconds of a pass of one row, as measured, or as other passes say; 0 if there were none.
  double plain_step_seconds = 0.0;

  // Mean tokens of a round that drafted: accepted drafts and the target's own token; 1 without any.
  double acceptance_length() const;
};

// One token of a generation.
struct TokenEvent {
  TokenId id = 0;
  bool drafted = false;  // the drafter had proposed it, and the model chose it
  // Null without GenerateOptions::logprobs; it lives as long as the call.
  const TokenLogprobs* logprobs = nullptr;
};

// A row that a pass gives of a token.
enum class RowKind : std::uint8_t {
  kLogits,  // [V]: of what comes behind the token, before any sampling option
  kHidden,  // [D]: the last layer's output behind the final norm, of which the head makes logits
};

// Takes the row of the token at `position`; it is valid during the call. An error ends what runs.
using RowCallback = std::function<Status(Position position, std::span<const float> row)>;

// Called for each token when the round that chose it is over; false ends the generation after it.
using TokenCallback = std::function<bool(const TokenEvent& token)>;

class Session {
 public:
  virtual ~Session() = default;

  // Adds tokens to the end without running them; generate() or prefill() will.
  // Errors: kInvalidArgument for an id outside the vocabulary, kResourceExhausted beyond the
  // context; nothing changes then.
  virtual Status append(std::span<const TokenId> ids) = 0;

  // Makes the session hold exactly `ids`, keeping what it has run of their common beginning or, if
  // that is more, taking over what the engine's prompt cache has of it, and returns how many tokens
  // need not be run: prefill() and generate() take over more if another session has run more of
  // them by then. Errors: as append; the session is unchanged then.
  virtual Result<std::int64_t> sync(std::span<const TokenId> ids) = 0;

  // Runs the pending tokens, but for a beginning that the prompt cache has, and for the last one,
  // which generate() runs for the token behind it. Errors: kCancelled if `progress` says so; what
  // was run stays.
  virtual Status prefill(const PrefillProgress& progress = {}) = 0;

  // Continues the tokens, which must not be empty. The sampled stream is a function of the tokens
  // and the sampling options alone. Errors: kInvalidArgument for an option out of range (which,
  // expected, got), kFailedPrecondition without tokens.
  virtual Result<GenerateResult> generate(const GenerateOptions& options,
                                          const TokenCallback& on_token = {}) = 0;

  // Adds tokens to the end, runs them, and returns of each how likely it was behind those before
  // it, with so many of the likeliest tokens there, 0 to kMostTopLogprobs. The numbers do not
  // depend on how tokens are divided between calls, nor on SessionOptions::max_rows. The session
  // goes on behind the tokens, as after prefill(). To score a whole text, append Engine::bos_id()
  // first. Errors: kFailedPrecondition without tokens before these, as nothing says how likely a
  // first one is; as append(); kInvalidArgument for top_logprobs out of range. Nothing changes
  // then. kResourceExhausted for the memory of the logits; kDataLoss for logits that are not
  // finite. The tokens may have been added by then, in part or all of them; truncate() takes them
  // back.
  virtual Result<std::vector<TokenLogprobs>> score(std::span<const TokenId> ids,
                                                   int top_logprobs = 0) = 0;

  // Adds tokens to the end, runs them, and calls `look` with the row of each, in order. A row does
  // not depend on how tokens are divided between calls, nor on SessionOptions::max_rows. Other
  // sessions of the engine wait while `look` runs. The session goes on behind the tokens, as after
  // prefill(). Errors: as append(), nothing changes then; those of `look`; kResourceExhausted for
  // the memory of the rows; kUnimplemented where all of the text is run again for each token. The
  // tokens have been added by then; truncate() takes them back.
  virtual Status read_rows(std::span<const TokenId> ids, RowKind kind, const RowCallback& look) = 0;

  // Forgets the tokens from `length` on, exactly; the last one that stays is run again when the
  // session goes on. Errors: kInvalidArgument for a length out of
  // range, kFailedPrecondition if the rows of a sliding window before it are gone (a session that
  // started from the prompt cache can go back only as far as what it took over); nothing changes
  // then.
  virtual Status truncate(Position length) = 0;

  virtual std::span<const TokenId> tokens() const = 0;
  // Another session with the same tokens, options and drafter. It goes on as this one would, and
  // neither sees what the other does afterwards. Both share the keys and values of what was run.
  // Making a fork therefore costs next to nothing. When one of the two runs tokens, it copies the
  // blocks of keys and values that it writes into. If no token is pending, the fork runs the last
  // one again. Each may be used on a thread of its own.
  virtual Result<std::unique_ptr<Session>> fork() = 0;

  // Writes the session to a file, from which restore() goes on as this session would, bit for bit;
  // `note` is the caller's and comes back with it (at most 16 MiB). The file is the old one or the
  // whole new one at every moment. Errors: kUnavailable if the disk refuses, kInvalidArgument for
  // the note.
  virtual Status snapshot(const std::string& path, std::string_view note = {}) = 0;

  // Becomes what was written, and returns the note. Engine and options must be as they were then:
  // model, drafter, compute, backend, context, max_rows, how keys and values are kept. Errors:
  // kNotFound; kFailedPrecondition for a file of something else, saying what differs; kDataLoss,
  // kInvalidArgument or kUnimplemented for a damaged file or another version; the session is
  // unchanged then. Each is one line that names the file.
  virtual Result<std::string> restore(const std::string& path) = 0;

  // Most tokens that it can hold: SessionOptions::context, or what that became.
  virtual std::int64_t context() const = 0;
  // How many of the tokens have been run, or taken over from the prompt cache.
  virtual Position position() const = 0;
  // How many of the first tokens were taken over from the engine's prompt cache and are still held;
  // 0 without one (EngineOptions::prompt_cache_bytes).
  virtual Position cached_tokens() const = 0;
  // Bytes that stay allocated while the session is there, without the weights. Sessions that share
  // memory count it each; Engine::footprint() counts every byte once.
  virtual Footprint footprint() const = 0;
};

}  // namespace kakeya
