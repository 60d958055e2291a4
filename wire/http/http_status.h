// The one table from errors of the library to statuses of HTTP.
#pragma once

#include "kakeya/status.h"

namespace kakeya::wire {

inline unsigned http_status(StatusCode status) {
  switch (status) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kFailedPrecondition:
      return 400;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kResourceExhausted:
      return 429;
    case StatusCode::kUnimplemented:
      return 501;
    case StatusCode::kCancelled:
    case StatusCode::kUnavailable:
      return 503;
    case StatusCode::kDeadlineExceeded:
      return 504;
    case StatusCode::kInternal:
    case StatusCode::kDataLoss:
      break;
  }
  return 500;
}

}  // namespace kakeya::wire
