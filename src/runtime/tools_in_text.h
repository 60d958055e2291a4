// Tools of a conversation as text, for chat templates that show none: a template that leaves tools
// out would otherwise leave the model without them, silently.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kakeya/chat.h"

namespace kakeya {

// The message in which the tools stand.
enum class ToolsPlace : std::uint8_t {
  kSystem,    // the system message, one in front if there is none
  kFirstUser  // in front of the first user's content: for templates without system messages
};

// True if a conversation has something of tools in it.
bool has_tools(std::span<const ChatMessage> messages, const std::vector<std::string>& tools);

// The conversation with its tools, calls and results written into the contents, in the form in
// which Qwen's and Hermes' models write calls (service::ToolFormat::kQwenJson):
//   <tool_call>\n{"name": NAME, "arguments": {...}}\n</tool_call>
// Results become user messages, those of one turn a single one.
std::vector<ChatMessage> with_tools_in_text(std::span<const ChatMessage> messages,
                                            const std::vector<std::string>& tools,
                                            ToolsPlace place);

}  // namespace kakeya
