// LM Studio's routes that list models, load them and give them up over HTTP
// (https://lmstudio.ai/docs/developer/rest). Its clients chat as OpenAI's do.
#pragma once

#include "wire/http/routes.h"

namespace kakeya::lm_studio {

// `error_body`: of the dialect that its clients chat in.
wire::Dialect dialect(wire::ErrorBody error_body);

}  // namespace kakeya::lm_studio
