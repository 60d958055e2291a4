// Messages and tools of OpenAI's requests. Problems are the reader's.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "kakeya/chat.h"
#include "server/json_reader.h"

namespace kakeya::server {

inline constexpr std::size_t kMostMessages = 4096;
inline constexpr std::size_t kMostToolCalls = 256;         // of a message
inline constexpr std::size_t kMostValuesWithTools = 8192;  // of a body that has tools

// "messages": an array of at least one.
void read_messages(JsonReader& reader, const Json& body, std::vector<ChatMessage>& out);

// "tools", unless "tool_choice" is "none". `text` is what `body` was read of.
void read_tools(JsonReader& reader, const Json& body, std::string_view text, ChatOptions& out);

// "chat_template_kwargs": {"enable_thinking"}, which templates of models that think take.
void read_template_arguments(JsonReader& reader, const Json& body, ChatOptions& out);

}  // namespace kakeya::server
