// Sessions over HTTP (/v1/sessions): what is there, what it holds, forks and ends. docs/serving.md
// lists the fields.
#pragma once

#include "wire/http/routes.h"

namespace kakeya::sessions {

// `error_body`: of the dialect whose clients ask.
wire::Dialect dialect(wire::ErrorBody error_body);

}  // namespace kakeya::sessions
