// Text on top of a session: decodes tokens as they come, finds stop strings across token borders,
// never emits half a character.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/session.h"
#include "kakeya/tokenizer.h"

namespace kakeya {

struct TextResult {
  GenerateResult tokens;
  std::string text;              // without the stop string, and without special tokens
  bool stopped_by_text = false;  // a stop string ended it; tokens.stop_reason is kCallback then
};

// Called after each token with the text that is final by it, which may be none; false ends the
// generation.
using TextCallback = std::function<bool(std::string_view)>;

// Continues the session's tokens. Tokens that belong to a stop string stay in the session.
// Errors: as Session::generate; kInvalidArgument for an empty stop string.
Result<TextResult> generate_text(Session& session,
                                 const Tokenizer& tokenizer,
                                 const GenerateOptions& options,
                                 const std::vector<std::string>& stop_strings,
                                 const TextCallback& on_text);

}  // namespace kakeya
