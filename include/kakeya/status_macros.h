// Passing errors on: for functions that return a Status or a Result and call others that do.
//
//   KAKEYA_TRY(session->append(ids));
//   KAKEYA_ASSIGN_OR_RETURN(const auto result, session->generate({}));
//
// Not included by any other header of the interface: whoever wants macros asks for them.
#pragma once

#include <utility>

#include "kakeya/status.h"

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
