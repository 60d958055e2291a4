// Tools of OpenAI's requests, and whether answers may call them. Problems are the reader's.
#pragma once

#include <string_view>

#include "service/answer_request.h"
#include "wire/http/json_reader.h"
#include "wire/openai/tool_names.h"

namespace kakeya::openai {

// "tools", unless "tool_choice" is "none", "tool_choice" and "parallel_tool_calls". `text` is what
// `body` was read of.
void read_tools(wire::JsonReader& reader,
                const wire::Json& body,
                std::string_view text,
                service::AnswerRequest& out);

// Reads these as the Responses API has them: a tool is {"type": "function", "name", ...}, also in
// {"type": "namespace", "name", "tools"}, and in items {"type": "additional_tools"}. Templates are
// shown it as above, with a name that tells namespaces apart. Returns what clients call these.
ClientTools read_flat_tools(wire::JsonReader& reader,
                            const wire::Json& body,
                            std::string_view text,
                            service::AnswerRequest& out);

}  // namespace kakeya::openai
