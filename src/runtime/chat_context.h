// A conversation as the variables of a chat template.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "kakeya/chat.h"
#include "kakeya/status.h"

namespace kakeya {

// Replaces a text that somebody wrote by the one that the template gets to see.
using HideText = std::function<std::string(std::string_view)>;

// {"messages", "tools" if there are any, "add_generation_prompt", "enable_thinking" if it is said}
// and ChatOptions::arguments, in the shape that transformers gives templates: arguments of calls
// are objects, or the text of one that was cut off. Every text that somebody wrote passes through
// `hide`, names and members of JSON included. Errors: kInvalidArgument for what should be a JSON
// object and is none, or is nested too deeply; says which.
Result<nlohmann::ordered_json> chat_context(std::span<const ChatMessage> messages,
                                            const ChatOptions& options,
                                            const HideText& hide);

}  // namespace kakeya
