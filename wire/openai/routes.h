// The routes of OpenAI's API, and those that llama.cpp and vLLM have beside it.
#pragma once

#include "wire/http/routes.h"

namespace kakeya::openai {

// Responses are kept by what this returns: each server is given one of its own.
wire::Dialect dialect();

}  // namespace kakeya::openai
