// Text on top of a session: decodes tokens as they come, finds stop strings across token borders,
// never emits half a character.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/options.h"
#include "kakeya/session.h"
#include "kakeya/status.h"
#include "kakeya/tokenizer.h"

namespace kakeya {

struct TextOptions {
  GenerateOptions generate = {};
  // Generation ends where the text has one of them; none may be empty.
  std::vector<std::string> stop_strings = {};
};

struct TextResult {
  GenerateResult tokens;  // ids, times, rounds and why it ended
  std::string text;       // UTF-8, without the stop string and without special tokens
  // A stop string ended it, whatever tokens.stop_reason says: kCallback, or that of the token which
  // would have been the last one anyway.
  bool stopped_by_text = false;
};

// Called on the thread of generate_text(), after each token, with the text that is final by it.
// That may be empty: a character, or what may become a stop string, is held back until it is
// whole. Unless a stop string ended it, the rest comes in one more call. The pieces together are
// TextResult::text. False ends the generation. A piece is valid during the call only. Before that
// last call the session is busy, as in a TokenCallback.
using TextCallback = std::function<bool(std::string_view piece)>;

// Continues the session's tokens, which must not be empty, and returns what they say. Tokens of a
// stop string stay in the session. The tokenizer is the one of the session's engine; session and
// tokenizer are used during the call only. One thread at a time for a session; sessions on several
// threads may share a tokenizer.
// Errors: as Session::generate(); kInvalidArgument for an empty stop string, before anything runs.
Result<TextResult> generate_text(Session& session,
                                 const Tokenizer& tokenizer,
                                 const TextOptions& options,
                                 const TextCallback& on_text = {});

}  // namespace kakeya
