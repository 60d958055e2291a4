// Conversations of Anthropic's requests. Problems are the reader's.
#pragma once

#include <string_view>

#include "service/answer_request.h"
#include "wire/http/json_reader.h"

namespace kakeya::anthropic {

// "system" and "messages". `text` is what `body` was read of. Templates know one message of the
// system, at the beginning: what it says between the others stands in a user's message there,
// between <system-reminder> and </system-reminder>.
void read_conversation(wire::JsonReader& reader,
                       const wire::Json& body,
                       std::string_view text,
                       service::AnswerRequest& out);

}  // namespace kakeya::anthropic
