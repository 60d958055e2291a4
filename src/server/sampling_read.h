// Fields of OpenAI's requests that say how tokens are chosen. Problems are the reader's.
#pragma once

#include "server/json_reader.h"
#include "server/serve_request.h"

namespace kakeya::server {

void read_sampling(JsonReader& reader, const Json& body, SamplingWish& out);

}  // namespace kakeya::server
