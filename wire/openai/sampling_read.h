// Fields of OpenAI's requests that say how tokens are chosen. Problems are the reader's.
#pragma once

#include "service/answer_request.h"
#include "wire/http/json_reader.h"

namespace kakeya::server {

void read_sampling(JsonReader& reader, const Json& body, SamplingWish& out);

}  // namespace kakeya::server
