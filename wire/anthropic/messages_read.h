// Bodies of Anthropic's Messages API, read and checked. Pure: nothing but the text is looked at.
// Fields that change nothing of an answer are ignored (metadata, cache_control). Errors:
// kInvalidArgument, naming the field, what was expected and what was there; also for fields that it
// knows but cannot serve.
#pragma once

#include <string_view>

#include "service/answer_request.h"
#include "service/refusal.h"

namespace kakeya::anthropic {

// POST /v1/messages.
service::Outcome<service::AnswerRequest> read_messages_request(std::string_view body);

// POST /v1/messages/count_tokens: the same without what is about the answer.
service::Outcome<service::AnswerRequest> read_count_request(std::string_view body);

}  // namespace kakeya::anthropic
