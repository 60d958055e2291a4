// Conversations and tools as dicts of Python, as OpenAI has them.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "kakeya/chat.h"

namespace kakeya::python {

namespace nb = nanobind;

// Each a dict with "role" and "content", which calls may stand in place of; what is None or an
// empty list says nothing. Throws TypeError for another name or type, ValueError for no message.
std::vector<ChatMessage> chat_messages(const nb::sequence& given);
nb::dict message_dict(const ChatMessage& message);
// Tools as ChatOptions::tools has them, of dicts as OpenAI has them.
std::vector<std::string> tool_texts(const nb::sequence& given);

}  // namespace kakeya::python
