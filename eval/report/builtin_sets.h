// The sets in eval/data as far as the gate knows them, so that it can judge a report where they are
// not installed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kakeya::eval {

// How many prompts an evaluation takes of a set that comes with the program; `limit` 0: all. None
// for a set of another name.
std::optional<std::int64_t> builtin_prompts(std::string_view set, std::int64_t limit);

// The hash of the problems that come with the program for "humaneval" or "gsm8k"; empty for
// another task.
std::string_view builtin_problems_sha256(std::string_view task);

// The answer of a problem of these ("gsm8k/1"), as normal_number() has it; empty for another id.
std::string builtin_answer(std::string_view id);

}  // namespace kakeya::eval
