// A mailbox from the driver to one connection: tokens, then an end. The driver never waits for a
// connection, so the box has a limit: whoever lets it fill up gets no further tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "kakeya/logprobs.h"
#include "kakeya/session.h"
#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya::service {

struct GeneratedToken {
  TokenId id = 0;
  std::optional<TokenLogprobs> logprobs = {};
  bool drafted = false;  // proposed by the drafter, and what the model chose
  bool thought = false;  // of a thought or its markers; known to the answer that takes it
};

// How a request ended: with a reason, or an error.
using RequestEnd = Result<StopReason>;

struct Mail {
  std::vector<GeneratedToken> tokens;
  std::optional<RequestEnd> end;  // there is no more
};

// Thread-safe. One thread puts, one takes.
class Mailbox {
 public:
  // Holds at most `most_tokens`. `wake` is called, under the box's lock, when there is something to
  // take and was nothing before; it must neither wait nor throw nor use the box.
  Mailbox(std::size_t most_tokens, std::function<void()> wake);

  // False if nobody reads: the box is full or closed, and the request should end.
  bool put(GeneratedToken token);

  // The last thing put; further ones are ignored.
  void end(RequestEnd end);

  // How many tokens of the prompt were taken over from what was run before; put before any token.
  void put_cached(std::int64_t tokens);
  // The number given to put_cached(); 0 before.
  std::int64_t cached() const;

  // Takes the tokens and the end that have come; an empty Mail if there is nothing new.
  Mail take();

  // For the reader that goes away: `wake` is not called from here on.
  void close();

  // True if put() ever found the box full.
  bool overflowed() const;

 private:
  const std::size_t most_tokens_;
  mutable std::mutex mutex_;
  std::function<void()> wake_;
  Mail mail_;
  std::int64_t cached_ = 0;
  bool ended_ = false;
  bool closed_ = false;
  bool overflowed_ = false;
};

}  // namespace kakeya::service
