// Helpers around kakeya/status.h for code inside the library: building errors and passing them on.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "kakeya/status.h"

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

#define KAKEYA_CONCAT_INNER(a, b) a##b
#define KAKEYA_CONCAT(a, b) KAKEYA_CONCAT_INNER(a, b)

// Evaluates a Status or Result and returns its error from the enclosing function, if any.
#define KAKEYA_TRY(expr)                                       \
  do {                                                         \
    if (auto kakeya_try_status = (expr); !kakeya_try_status) { \
      return ::kakeya::Unexpected(kakeya_try_status.error());  \
    }                                                          \
  } while (false)

// Evaluates a Result; on success assigns its value to `lhs` (which may be a declaration).
#define KAKEYA_ASSIGN_OR_RETURN(lhs, expr) \
  KAKEYA_ASSIGN_OR_RETURN_INNER(KAKEYA_CONCAT(kakeya_result_, __LINE__), lhs, expr)
#define KAKEYA_ASSIGN_OR_RETURN_INNER(result, lhs, expr)               \
  auto result = (expr);                                                \
  if (!result) return ::kakeya::Unexpected(std::move(result).error()); \
  lhs = std::move(result).value()
