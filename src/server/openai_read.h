// Bodies of POST /v1/chat/completions, read and checked. Pure: nothing but the text is looked at.
#pragma once

#include <cstddef>
#include <string_view>

#include "server/serve_request.h"

namespace kakeya::server {

// What a body may cost before anything of it is allocated.
inline constexpr std::size_t kMostJsonDepth = 64;
inline constexpr std::size_t kMostJsonValues = 262'144;
inline constexpr std::size_t kMostMessages = 4096;
inline constexpr std::size_t kMostLogitBiases = 1024;

// Fields that it does not know are ignored. Errors: kInvalidArgument, naming the field, what was
// expected and what was there; also for fields that it knows but cannot serve.
Outcome<ServeRequest> read_chat_request(std::string_view body);

}  // namespace kakeya::server
