// Texts asked of a server that holds the model, several at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "kakeya/status.h"

namespace kakeya::eval {

// A server's answer to a user's message.
struct ServedText {
  std::string text = {};
  std::int64_t tokens = 0;  // 0: the server does not say
  double seconds = 0.0;     // from the first piece of text to the last
};

// Called by several threads at once.
using AskServer = std::function<Result<ServedText>(const std::string& prompt)>;

// Asks `prompts`, at most `parallel` at a time, and gives `take` each answer as it comes, on the
// caller's thread, with its prompt's index. Errors: the first one of `take` ends it, after the
// answers that are under way.
Status ask_in_parallel(std::span<const std::string> prompts,
                       std::int64_t parallel,
                       const AskServer& ask,
                       const std::function<Status(std::size_t, Result<ServedText>)>& take);

}  // namespace kakeya::eval
