// Edits of a conversation that Anthropic's requests ask for ("context_management").
#pragma once

#include "service/answer_request.h"
#include "wire/http/json_reader.h"

namespace kakeya::anthropic {

// Clears thoughts of earlier turns. Other edits are not made: one that would apply is refused,
// here or, where its trigger is a number of tokens, by make_requests(). Behind the conversation.
void read_context_edits(wire::JsonReader& reader,
                        const wire::Json& body,
                        service::AnswerRequest& out);

}  // namespace kakeya::anthropic
