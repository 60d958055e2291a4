// Ollama's API over HTTP (https://github.com/ollama/ollama, docs/api.md).
#pragma once

#include "wire/http/routes.h"

namespace kakeya::ollama {

wire::Dialect dialect();

}  // namespace kakeya::ollama
