// A request that a scheduler has taken, from add() to on_end.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "decode/generation.h"
#include "kakeya/scheduler.h"
#include "runtime/prompt_reader.h"
#include "runtime/session_impl.h"

namespace kakeya {

struct Sequence {
  RequestId id = 0;  // 0: it has ended
  Request request;
  std::uint64_t need = 0;   // bytes that its session takes, and what passes need besides
  std::uint64_t least = 0;  // bytes that must be free, more than were when the system had too few
  std::unique_ptr<SessionImpl> session;  // null while it waits
  PreparedGeneration prepared;
  std::optional<Generation> generation;  // there from the prompt's last chunk on
  // While it runs, of one that generates nothing; such a one has no generation.
  std::unique_ptr<PromptReader> reader;
  Stopwatch since_added;
  Stopwatch since_admitted;
  double queue_seconds = 0.0;
  double first_token_seconds = 0.0;
  // One that runs a prompt which begins alike; this one waits until it has run `shared` tokens.
  // Null: none.
  Sequence* leader = nullptr;
  Position shared = 0;
  // Where its text leaves another one's: the prompt cache keeps what both begin with. 0: nowhere.
  Position branch = 0;
  bool told_prompt = false;  // by Request::on_prompt
  bool seeks = true;         // a leader, when it is its turn
  bool passed_by = false;    // it waited so long that it started before higher priorities
  std::atomic<bool> cancelled{false};
  // The sequence's part in the present step: rows of the prompt that it runs, and the error that
  // ended it.
  std::int64_t prompt_rows = 0;
  Status failed;
  // The tokens that statistics have counted already.
  std::int64_t counted_tokens = 0;
  std::int64_t counted_drafted = 0;
  std::size_t counted_rounds = 0;
  std::int64_t counted_accepted = 0;

  // Lower ones give way to higher ones where there is no place or no memory. One that was passed by
  // gives way to nobody who waits: else it would start for nothing.
  int standing() const { return passed_by ? std::numeric_limits<int>::max() : request.priority; }
  Timeline& timeline() const { return session->timeline(); }
  // True if a running sequence has nothing left to run.
  bool done() const {
    return reader ? timeline().pending().empty() : generation && generation->done();
  }
  // The first position whose logits are wanted of the prompt.
  Position logits_from() const {
    return reader ? reader->logits_from() : std::ssize(timeline().tokens()) - 1;
  }
};

}  // namespace kakeya
