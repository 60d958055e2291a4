// Fields of OpenAI's requests and of other servers' that would make another answer, and that this
// server cannot give.
#pragma once

#include "wire/http/json_reader.h"

namespace kakeya::openai {

// Refuses, by name, the first field that asks for something: one whose value is neither null,
// empty nor what does nothing. Of a chat, of a response, of a prompt's completion, of embeddings
// and of a text that is tokenized.
void refuse_unserved_of_answers(wire::JsonReader& reader, const wire::Json& body);
void refuse_unserved_of_chats(wire::JsonReader& reader, const wire::Json& body);
void refuse_unserved_of_responses(wire::JsonReader& reader, const wire::Json& body);
void refuse_unserved_of_completions(wire::JsonReader& reader, const wire::Json& body);
void refuse_unserved_of_embeddings(wire::JsonReader& reader, const wire::Json& body);
void refuse_unserved_of_tokenize(wire::JsonReader& reader, const wire::Json& body);

}  // namespace kakeya::openai
