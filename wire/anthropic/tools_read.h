// Tools of Anthropic's requests, and whether answers may call them. Problems are the reader's.
#pragma once

#include <string_view>

#include "service/answer_request.h"
#include "wire/http/json_reader.h"

namespace kakeya::anthropic {

// "tools" of the client, unless "tool_choice" is none, and "tool_choice". `text` is what `body` was
// read of.
void read_tools(wire::JsonReader& reader,
                const wire::Json& body,
                std::string_view text,
                service::AnswerRequest& out);

}  // namespace kakeya::anthropic
