// Fields of OpenAI's requests that say how tokens are chosen. Problems are the reader's.
#pragma once

#include "service/answer_request.h"
#include "wire/http/json_reader.h"

namespace kakeya::openai {

void read_sampling(wire::JsonReader& reader, const wire::Json& body, service::SamplingWish& out);

}  // namespace kakeya::openai
