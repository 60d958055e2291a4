// Bodies of Ollama's requests, read and checked. Errors: kInvalidArgument, naming the field, what
// was expected and what was there; also for fields that it knows but cannot serve.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "service/answer_request.h"
#include "service/embedding_request.h"
#include "service/refusal.h"

namespace kakeya::ollama {

// Body of POST /api/chat. Answers are streamed unless it says otherwise. `context`: the most tokens
// of a conversation, which a request may not raise.
service::Outcome<service::AnswerRequest> read_chat(std::string_view body, std::int64_t context);

// Body of POST /api/generate: a question by the template or, if it is "raw", a text to go on with.
// Neither messages nor prompts where the model is asked to be there, and nothing else.
service::Outcome<service::AnswerRequest> read_generate(std::string_view body, std::int64_t context);

// Body of POST /api/embed: {"model", "input": a text or several}. Every text has to fit.
service::Outcome<service::EmbeddingRequest> read_embed(std::string_view body,
                                                       std::int64_t context,
                                                       std::int64_t hidden_size);
// Body of POST /api/embeddings, which was there before: {"model", "prompt"}.
service::Outcome<service::EmbeddingRequest> read_embeddings(std::string_view body,
                                                            std::int64_t context);

// The name of the model that a request is about, as the service has it; bodies may say "model" or
// "name".
service::Outcome<std::string> read_model_name(std::string_view body);

}  // namespace kakeya::ollama
