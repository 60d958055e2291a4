// Fields of OpenAI's requests and of other servers' that would make another answer, and that this
// server cannot give.
#pragma once

#include "wire/http/json_reader.h"

namespace kakeya::server {

// Refuses, by name, the first field that asks for something: one whose value is neither null,
// false, empty nor what does nothing. Of a chat, of a prompt's completion and of embeddings.
void refuse_unserved_of_answers(JsonReader& reader, const Json& body);
void refuse_unserved_of_chats(JsonReader& reader, const Json& body);
void refuse_unserved_of_completions(JsonReader& reader, const Json& body);
void refuse_unserved_of_embeddings(JsonReader& reader, const Json& body);

}  // namespace kakeya::server
