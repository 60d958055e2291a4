// The constraint that a compiled grammar makes.
#pragma once

#include <xgrammar/xgrammar.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kakeya/constraint.h"
#include "kakeya/tokenizer.h"
#include "service/grammar/background_worker.h"
#include "service/thought_markers.h"

namespace kakeya::service {

// Thoughts are free: whatever lies between markers, and a line's end that parts a thought from its
// answer. Behind them, or without them, tokens are what the grammar allows, and a stop id where it
// may end.
//
// A mask is mostly made within microseconds, where it is asked for. Behind one that took longer the
// next ones are made by the worker, as soon as their token is known, until one is quick again. A
// mask that takes over half a second ends the answer, with kInvalidArgument.
class GrammarConstraint final : public Constraint {
 public:
  // `worker`: null for a constraint that may take its time. `tokenizer`, which divides what it
  // proposes, must outlive it; null: it proposes nothing.
  GrammarConstraint(const xgrammar::CompiledGrammar& grammar,
                    std::optional<ThoughtMarkers> markers,
                    bool in_thought,
                    std::int64_t vocab_size,
                    std::shared_ptr<BackgroundWorker> worker,
                    const Tokenizer* tokenizer);
  ~GrammarConstraint() override;

  bool fill_mask(std::span<std::uint32_t> mask) override;
  bool advance(TokenId id) override;
  std::int64_t propose(std::span<TokenId> out) override;
  Pace pace() override;
  void roll_back(std::int64_t count) override;

 private:
  enum class Phase : std::uint8_t { kBefore, kThought, kBehindThought, kAnswer, kEnded };

  // The part that the worker needs, which may outlive the constraint.
  struct Matching {
    explicit Matching(const xgrammar::CompiledGrammar& grammar) : matcher(grammar) {}

    // Fills `mask`; false: all is allowed. Errors: as what is thrown.
    bool fill(std::span<std::uint32_t> out);
    // Takes the token and makes the mask behind it, on the worker.
    void go_on(TokenId id, bool ends);

    xgrammar::GrammarMatcher matcher;
    // The mask behind the last token, where the worker has made it.
    std::vector<std::uint32_t> mask = {};
    bool masks = false;
    double seconds = 0.0;  // that the last token and its mask took
    std::string failure = {};

    std::mutex mutex;
    std::condition_variable done;
    bool busy = false;  // the worker has it: nobody else touches the members above
    bool left = false;  // nobody asks any more
  };

  bool is_stop_id(TokenId id) const;
  bool is_line_end(TokenId id) const;
  // The matcher's part of fill_mask() and advance().
  bool fill(std::span<std::uint32_t> mask);
  bool take(TokenId id);
  // Waits for the worker. Throws an Error where a mask took too long.
  void wait();

  const std::shared_ptr<Matching> matching_;
  const std::vector<int> stop_ids_;
  const std::optional<ThoughtMarkers> markers_;
  const std::int64_t vocab_size_;
  const std::shared_ptr<BackgroundWorker> worker_;
  const Tokenizer* const tokenizer_;
  bool proposes_slowly_ = false;    // then it proposes no more
  std::string text_;                // of the answer, where there is a tokenizer
  std::vector<std::size_t> sizes_;  // of text_, before each of its tokens
  double taking_seconds_ = 0.0;     // of the last token, without its mask
  bool has_mask_ = false;           // matching_->mask is the present one
  std::vector<Phase> phases_;       // now at the end; before each token that was told
};

}  // namespace kakeya::service
