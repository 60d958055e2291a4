// Bodies of OpenAI's requests for responses, read and checked. Nothing but the text and the
// responses before is looked at. Errors: kInvalidArgument, naming the field, what was expected and
// what was there; also for fields that it knows but cannot serve.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "kakeya/chat.h"
#include "service/answer_request.h"
#include "service/refusal.h"
#include "wire/openai/responses_store.h"
#include "wire/openai/tool_names.h"

namespace kakeya::openai {

struct ResponseWish {
  service::AnswerRequest answer = {};
  bool store = true;                           // the response is kept
  std::vector<ChatMessage> conversation = {};  // without instructions, if the response is kept
  std::size_t first_input = 0;                 // of the conversation: the first message of `input`
  ClientTools tools = {};
  nlohmann::ordered_json repeated = {};  // fields of the request that the response repeats
};

// Body of POST /v1/responses. Errors: kNotFound for a previous response that `find` has not
// ("previous_response_not_found").
service::Outcome<ResponseWish> read_response_request(std::string_view body,
                                                     const FindResponse& find);

// Refuses an id of no response.
service::Refusal no_such_response(std::string_view id, std::string parameter, std::string code);

}  // namespace kakeya::openai
