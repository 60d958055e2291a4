// The form of an answer, as OpenAI, vLLM, SGLang and llama.cpp have clients ask for it.
#pragma once

#include <string_view>

#include "service/grammar/answer_format.h"
#include "wire/http/json_reader.h"

namespace kakeya::openai {

// Reads `response_format`, `structured_outputs`, the `guided_*` fields, `json_schema`, `grammar`,
// `regex` and `ebnf` of a body whose text is `text`: schemas keep the order of their members there.
// One of them at most may be given.
void read_format(wire::JsonReader& reader,
                 const wire::Json& body,
                 std::string_view text,
                 service::AnswerFormat& out);

}  // namespace kakeya::openai
