// Constrained decoding: a program says which tokens may come next (grammars, choices, anything).
#pragma once

#include <cstdint>
#include <span>

#include "kakeya/types.h"

namespace kakeya {

// Told of every token that is generated; asked before every choice which ones are allowed. It is
// also asked along drafts, which may come to nothing: then their tokens are taken back. The output
// with drafts equals the one without if fill_mask() depends on the tokens alone.
//
// An exception that it throws ends its generation with kInternal, an Error (kakeya/status.h) with
// that, and no other's; it is not called again by that generation. Tokens that a callback did not
// want are taken back, too.
//
// One generation uses it at a time; its calls come from the thread that runs the generation's
// passes: that of Session::generate() or Scheduler::step().
class Constraint {
 public:
  virtual ~Constraint() = default;

  // Says which tokens may come next: bit id % 32 of mask[id / 32], of all ids of the vocabulary;
  // there are (vocabulary + 31) / 32 words, all of them 0. Returns false if everything is allowed;
  // the mask does not count then. A stop id is a token like others: without it the text goes on.
  virtual bool fill_mask(std::span<std::uint32_t> mask) = 0;

  // The next token is `id`. False if that is not allowed; nothing has changed then.
  virtual bool advance(TokenId id) = 0;

  // Proposes the tokens that come next where it leaves no choice, as the model would divide them:
  // fills the beginning of `out` and returns how many. They become drafts, so wrong ones cost time
  // and change nothing. Asked where pace() is kAtOnce.
  virtual std::int64_t propose(std::span<TokenId> out) {
    static_cast<void>(out);
    return 0;
  }

  // How soon the next calls will answer. kSlowly: drafts, which would ask several times, are not
  // made. kNotYet: fill_mask() would wait for a mask that is being made elsewhere; a scheduler
  // leaves its sequence out of the pass meanwhile, so that no other one waits.
  enum class Pace : std::uint8_t { kAtOnce, kSlowly, kNotYet };
  virtual Pace pace() { return Pace::kAtOnce; }

  // Takes the last `count` tokens back, at most as many as there were since the generation began.
  virtual void roll_back(std::int64_t count) = 0;
};

}  // namespace kakeya
