// Conversations of OpenAI's requests: messages, tools, and what the template is told besides.
// Problems are the reader's.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "kakeya/chat.h"
#include "wire/http/json_reader.h"

namespace kakeya::openai {

inline constexpr std::size_t kMostMessages = 4096;
inline constexpr std::size_t kMostToolCalls = 256;  // of a message
inline constexpr std::size_t kMostTools = 1024;
inline constexpr std::size_t kMostValuesOfATool = 4096;  // reading members in order is quadratic

// "messages": an array of at least one; "tools", unless "tool_choice" is "none";
// "chat_template_kwargs" and the fields that mean one of these; "add_generation_prompt" and
// "continue_final_message". `text` is what `body` was read of.
void read_conversation(wire::JsonReader& reader,
                       const wire::Json& body,
                       std::string_view text,
                       std::vector<ChatMessage>& messages,
                       ChatOptions& options);

}  // namespace kakeya::openai
