// Helpers around kakeya/status.h for code inside the library: building errors. How they are passed
// on is kakeya/status_macros.h.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "kakeya/status.h"
#include "kakeya/status_macros.h"  // IWYU pragma: export

namespace kakeya {

// An error value to return, with a formatted message: `return error(kCode, "[where] what {}", x);`
template <typename... Args>
Unexpected error(StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Unexpected(Error(code, fmt::format(format, std::forward<Args>(args)...)));
}

template <typename... Args>
Unexpected invalid_argument(fmt::format_string<Args...> format, Args&&... args) {
  return error(StatusCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

template <typename... Args>
Unexpected data_loss(fmt::format_string<Args...> format, Args&&... args) {
  return error(StatusCode::kDataLoss, format, std::forward<Args>(args)...);
}

}  // namespace kakeya
