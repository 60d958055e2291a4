// The routes of Anthropic's Messages API.
#pragma once

#include "wire/http/routes.h"

namespace kakeya::anthropic {

wire::Dialect dialect();

}  // namespace kakeya::anthropic
