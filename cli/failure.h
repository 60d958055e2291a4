// Errors of the program's own, for sources that know the library from outside.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "kakeya/status.h"
#include "kakeya/status_macros.h"

namespace kakeya::cli {

// An error value to return, with a formatted message.
template <typename... Args>
Unexpected failure(StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Unexpected(Error(code, fmt::format(format, std::forward<Args>(args)...)));
}

// An error value for a command line or an input that cannot be used.
template <typename... Args>
Unexpected bad_usage(fmt::format_string<Args...> format, Args&&... args) {
  return failure(StatusCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

}  // namespace kakeya::cli
